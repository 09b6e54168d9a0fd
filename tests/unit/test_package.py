"""The package as a whole: what it shows, and what importing it costs."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import icestream


def _in_a_fresh_process(source: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    ).stdout


def test_every_public_name_can_be_imported() -> None:
    for name in icestream.__all__:
        assert getattr(icestream, name) is not None
    assert dir(icestream) == icestream.__all__


def test_importing_icestream_imports_neither_spark_nor_a_peer_nor_arrow() -> None:
    source = "import sys, json, icestream; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(_in_a_fresh_process(source)))
    assert not loaded & {"pyspark", "duckdb", "polars", "daft", "ray", "pandas", "pyarrow"}


def test_the_module_for_ray_is_reachable_without_importing_ray() -> None:
    source = "import sys, icestream; icestream.ray.read; print('ray' in sys.modules)"
    assert _in_a_fresh_process(source).strip() == "False"


def test_using_a_scan_imports_neither_spark_nor_a_peer() -> None:
    source = "import sys, json, icestream; icestream.scan; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(_in_a_fresh_process(source)))
    assert "pyarrow" in loaded
    unused = {"pyspark", "duckdb", "polars", "daft", "ray", "pandas", "pyarrow.dataset"}
    assert not loaded & unused


def test_jemalloc_becomes_arrows_allocator_when_icestream_is_imported_first() -> None:
    source = """
import os
os.environ.pop("ARROW_DEFAULT_MEMORY_POOL", None)
import icestream, pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
    assert _in_a_fresh_process(source).strip() == "jemalloc"


def test_jemalloc_gives_pages_back_soon_in_the_main_thread_too() -> None:
    source = """
import os
os.environ.pop("ARROW_DEFAULT_MEMORY_POOL", None)
os.environ.pop("JE_ARROW_MALLOC_CONF", None)
import icestream, pyarrow
kept = pyarrow.array(range(100_000))
os.dup2(1, 2)  # where it is printed
pyarrow.default_memory_pool().print_stats()
"""
    assert re.search(r"arenas\[0\]:(?s:.*?)\n\s+dirty:\s+200\s", _in_a_fresh_process(source))


def test_arrows_own_setting_of_the_allocator_wins() -> None:
    source = """
import os
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
import icestream, pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
    assert _in_a_fresh_process(source).strip() == "system"
