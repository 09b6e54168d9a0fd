"""A write that is killed leaves files; `orphans` finds exactly those."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.process import REPOSITORY
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int64()), ("text", pa.string())])
_BATCH_ROWS = 20_000
_BATCHES_BEFORE_PAUSE = 80

# Appends, stops in the middle of the stream until it is told to go on, and goes on.
_APPEND = f"""
import sys
from pathlib import Path
import icestream as ice
from tests.fault.test_orphans_after_kill import batches
from tests.support.tables import make_catalog

def paused():
    for number, batch in enumerate(batches(int(sys.argv[2]))):
        yield batch
        if number == {_BATCHES_BEFORE_PAUSE}:
            print("waiting", flush=True)
            sys.stdin.readline()

catalog = make_catalog(Path(sys.argv[1]))
ice.append(catalog.load_table("db.t"), paused(), memory="24MB")
print("done", flush=True)
catalog.close()
"""


def batches(first_id: int) -> Iterator[pa.RecordBatch]:
    """The stream that is appended."""
    for number in range(2 * _BATCHES_BEFORE_PAUSE):
        start = first_id + number * _BATCH_ROWS
        ids = np.arange(start, start + _BATCH_ROWS)
        # Partitions come one after another and texts can't be compressed: files are full early.
        parts = np.full(_BATCH_ROWS, number // 13)
        texts = np.random.default_rng(start).integers(0, 2**62, _BATCH_ROWS)
        columns = [pa.array(ids), pa.array(parts), pa.array(texts).cast(pa.string())]
        yield pa.record_batch(columns, schema=_SCHEMA)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture(params=["unpartitioned", pytest.param("partitioned", marks=pytest.mark.slow)])
def table(catalog: SqlCatalog, request: pytest.FixtureRequest) -> Table:
    properties = {"write.target-file-size-bytes": "300000"}
    table = catalog.create_table("db.t", _SCHEMA, properties=properties)
    if request.param == "partitioned":
        with table.update_spec() as update:
            update.add_identity("part")
    ice.append(table, next(batches(0)))
    return table


@contextmanager
def _appending(tmp_path: Path, first_id: int) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of an append."""
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    with subprocess.Popen(
        [sys.executable, "-c", _APPEND, str(tmp_path), str(first_id)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            yield process
        finally:
            process.kill()


def _unreferenced(table: Table) -> set[str]:
    return stored_files(folder_of(table)) - referenced_files(table)


def _wait_for_files(table: Table, least: int) -> set[str]:
    give_up = time.monotonic() + 60
    while len(left := _unreferenced(table)) < least:
        assert time.monotonic() < give_up, left
        time.sleep(0.02)
    return left


def test_orphans_after_kill_9_leaves_exactly_what_the_table_refers_to(
    table: Table, tmp_path: Path
) -> None:
    with _appending(tmp_path, 10**6) as process:
        _wait_for_files(table, 4)
        process.kill()
        process.wait()
        left = _unreferenced(table)
    assert ice.orphans(table).count == 0  # not before three days
    report = ice.orphans(table, older_than=0)
    assert {file.path.removeprefix("file://") for file in report.files} == left
    assert {file.reason for file in report.files} == {"in-flight"}
    ice.orphans(table, older_than=0, delete=True)
    assert stored_files(folder_of(table)) == referenced_files(table)
    assert table.refresh().scan().to_arrow().num_rows == _BATCH_ROWS


def test_orphans_after_kill_9_leaves_a_write_alone_that_goes_on(
    table: Table, tmp_path: Path
) -> None:
    with _appending(tmp_path, 10**6) as dead, _appending(tmp_path, 10**8) as live:
        _wait_for_files(table, 8)
        dead.kill()
        dead.wait()
        report = ice.orphans(table, older_than=0, delete=True)
        assert report.files_deleted >= 4
        assert report.kept_in_flight >= 2
        assert report.kept_in_flight == len(_unreferenced(table))
        assert live.stdin is not None
        assert live.stdout is not None
        live.stdin.write("\n")
        live.stdin.flush()
        assert live.stdout.readline() == "done\n"
        assert live.wait() == 0
    assert stored_files(folder_of(table)) == referenced_files(table)
    ids = table.refresh().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    expected = list(range(_BATCH_ROWS))
    expected += range(10**8, 10**8 + 2 * _BATCHES_BEFORE_PAUSE * _BATCH_ROWS)
    assert sorted(ids) == expected
