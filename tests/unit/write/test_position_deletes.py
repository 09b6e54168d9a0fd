"""Position delete files: one for each data file, gone after an abort."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from icestream.write.position_deletes import PositionDeletes
from icestream.write.target import WriteTarget
from tests.support.tables import data_files
from tests.support.writing import Parts

_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.t", _SCHEMA)
    for _ in range(2):
        table.append(pa.table({"id": pa.array(range(400_000), pa.int64())}))
    return table


def _positions(file: DataFile) -> tuple[set[str], list[int]]:
    rows = pq.ParquetFile(file.file_path.removeprefix("file://")).read()
    return set(rows.column("file_path").to_pylist()), rows.column("pos").to_pylist()


def test_each_data_file_gets_one_file_of_its_positions(table: Table) -> None:
    first, second = data_files(table)
    deletes = PositionDeletes(WriteTarget.of(table))
    deletes.add(first, np.array([1, 5]))
    deletes.add(first, np.array([], np.int64))
    deletes.add(first, np.array([9]))
    deletes.add(second, np.arange(300_000))
    files = deletes.close()
    assert [_positions(file) for file in files] == [
        ({first.file_path}, [1, 5, 9]),
        ({second.file_path}, list(range(300_000))),
    ]
    small, large = files
    assert small.content == DataFileContent.POSITION_DELETES
    assert (small.record_count, large.record_count) == (3, 300_000)
    # Readers know the data file and the range of rows without opening the delete file.
    bounds = {2147483546: first.file_path.encode(), 2147483545: (1).to_bytes(8, "little")}
    assert small.lower_bounds == bounds
    assert small.upper_bounds == {**bounds, 2147483545: (9).to_bytes(8, "little")}


def test_nothing_deleted_is_no_file(table: Table) -> None:
    deletes = PositionDeletes(WriteTarget.of(table))
    deletes.add(data_files(table)[0], np.array([], np.int64))
    assert deletes.close() == []


def test_abort_deletes_finished_and_open_files(table: Table) -> None:
    before = Parts(table).data_files()
    first, second = data_files(table)
    deletes = PositionDeletes(WriteTarget.of(table))
    deletes.add(first, np.array([1]))
    deletes.add(second, np.arange(200_000))  # fills a row group, so its file is open
    assert len(Parts(table).data_files()) == len(before) + 2
    deletes.abort()
    assert Parts(table).data_files() == before
