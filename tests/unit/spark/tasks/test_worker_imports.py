"""What a Python worker imports, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.tasks.task_plan import plan_tasks

_READ = """
import sys
import pyarrow
from icestream.spark.tasks.planned_frame import read_share

share = open(sys.argv[1], "rb").read()
rows = sum(batch.num_rows for batch in read_share(share, 64_000_000, None))
print(rows, *(name for name in sys.argv[2:] if name in sys.modules))
"""
_UNWANTED = (
    "pandas",
    "pyarrow.dataset",
    "pyiceberg.catalog",
    "sqlalchemy",
    "requests",
    "rich",
    "click",
    "pyspark.sql",
    "icestream.commit",
    "icestream.operations",
    "icestream.pipeline",
)


def _in_a_new_process(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_worker_that_reads_a_share_imports_no_code_that_it_does_not_use(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    rows = pa.table({"id": range(1000), "name": ["x"] * 1000})
    table = catalog.create_table("db.t", rows.schema)
    ice.append(table, rows)
    share = tmp_path / "share"
    share.write_bytes(plan_tasks(ice.scan(table), SessionDefaults()).shares[0])
    assert _in_a_new_process(_READ, str(share), *_UNWANTED) == "1000"


def test_pyiceberg_can_scan_a_dataset_after_icestream_has_imported_its_file_access(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.orc"
    orc.write_table(pa.table({"id": [1, 2, 3]}), path)
    code = (
        "import sys, icestream.catalogs.arrow_io, pyiceberg.io.pyarrow as arrow_io\n"
        "assert 'pyarrow.dataset' not in sys.modules\n"
        "fragment = arrow_io.ds.OrcFileFormat().make_fragment(open(sys.argv[1], 'rb'))\n"
        "import pyarrow.dataset as real\n"
        "print(fragment.count_rows(), isinstance(fragment, real.Fragment), type(real).__name__)"
    )
    assert _in_a_new_process(code, str(path)) == "3 True module"
