"""The data source that Spark imports in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys


def _in_a_fresh_process(source: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    ).stdout


def test_what_hands_out_a_plan_imports_neither_arrow_nor_pyiceberg() -> None:
    """Spark starts a process for it, each time."""
    source = """
import json, sys
import pyspark.sql.datasource
before = set(sys.modules)
import icestream.spark.data_source
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    added = json.loads(_in_a_fresh_process(source))
    assert "icestream.spark.data_source" in added
    assert not [name for name in added if name.partition(".")[0] in ("pyarrow", "pyiceberg")]
