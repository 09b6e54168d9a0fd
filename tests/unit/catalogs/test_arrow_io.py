"""PyIceberg's file access without PyArrow's datasets, in fresh processes."""

from __future__ import annotations

import subprocess
import sys

_DATASETS_COME_LATER = """
import sys
import icestream.catalogs.arrow_io
assert "pyarrow.dataset" not in sys.modules
assert "pandas" not in sys.modules
import pyiceberg.io.pyarrow
assert pyiceberg.io.pyarrow.ds.Scanner.__module__ == "pyarrow._dataset"
import pyarrow.dataset
assert pyiceberg.io.pyarrow.ds.dataset is pyarrow.dataset.dataset
"""
_ANOTHER_THREAD_IMPORTS_THEM = """
import sys
from icestream.catalogs import arrow_io
del sys.modules["pyiceberg.io.pyarrow"]
with arrow_io._datasets_later():
    import pyarrow.dataset
    import pyarrow.dataset as taken
assert pyarrow.dataset.dataset is taken.dataset
assert taken.Scanner.__module__ == "pyarrow._dataset"
import pyarrow.dataset
assert type(sys.modules["pyarrow.dataset"]).__name__ == "module"
assert taken.dataset is pyarrow.dataset.dataset
"""


def _run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_datasets_are_imported_when_pyiceberg_first_uses_them() -> None:
    _run(_DATASETS_COME_LATER)


def test_a_thread_that_imports_datasets_meanwhile_can_use_them() -> None:
    _run(_ANOTHER_THREAD_IMPORTS_THEM)
