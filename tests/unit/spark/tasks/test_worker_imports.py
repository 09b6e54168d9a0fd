"""What a Python worker imports, in fresh processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.tasks.plain_record import decode
from icestream.spark.tasks.task_plan import plan_tasks
from icestream.spark.tasks.task_write import ANSWER_PARTS, TaskResult
from icestream.spark.writing.table_write import FrameWriteOptions
from icestream.spark.writing.written_frame import plan

_READ = """
import sys
import pyarrow
from icestream.spark.tasks.planned_frame import read_share

share = open(sys.argv[1], "rb").read()
rows = sum(batch.num_rows for batch in read_share(share, 64_000_000, None))
print(rows, *(name for name in sys.argv[2:] if name in sys.modules))
"""
_APPEND = """
import pickle
import sys
import numpy
import pyarrow
import pyspark

task = pickle.load(open(sys.argv[1], "rb"))
ids = pyarrow.Array.from_buffers(pyarrow.int64(), 3, [None, pyarrow.py_buffer(numpy.arange(3))])
[row] = task([pyarrow.record_batch([ids, ids.cast("string")], names=["id", "name"])])
sys.stdout.buffer.write(row.column("result")[0].as_buffer())
print(row.schema.field("stage").type, row.column("retried")[0], file=sys.stderr)
print(*(name for name in sys.argv[2:] if name in sys.modules), file=sys.stderr)
"""
_UNUSED = ("pandas", "pyarrow.dataset", "sqlalchemy", "requests", "rich")
_UNUSED_BY_READS = (
    *_UNUSED,
    "pyiceberg.catalog",
    "icestream.commit",
    "icestream.operations",
    "icestream.pipeline",
)


def _in_a_new_process(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def test_a_worker_that_reads_a_share_imports_no_code_that_it_does_not_use(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    rows = pa.table({"id": range(1000), "name": ["x"] * 1000})
    table = catalog.create_table("db.t", rows.schema)
    ice.append(table, rows)
    share = tmp_path / "share"
    share.write_bytes(plan_tasks(ice.scan(table), SessionDefaults()).shares[0])
    result = _in_a_new_process(_READ, str(share), *_UNUSED_BY_READS)
    assert result.stdout.split() == ["1000"]


def test_a_worker_that_appends_imports_no_code_that_it_does_not_use(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    catalog.create_table("db.t", schema)
    options = FrameWriteOptions("append", memory=64_000_000)
    task = tmp_path / "task"
    task.write_bytes(pickle.dumps(plan("db.t", catalog, schema, options, None)[0].task))
    result = _in_a_new_process(_APPEND, str(task), *_UNUSED)
    assert result.stderr.split() == ["int32", "False"]
    written = decode(result.stdout.encode(), TaskResult, *ANSWER_PARTS).written
    assert written.rows == 3


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
    assert _in_a_new_process(code, str(path)).stdout.split() == ["3", "True", "module"]
