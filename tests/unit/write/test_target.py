"""The target of a write: plain data that any worker can use."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import icestream as ice
from icestream.errors import InvalidArgumentError
from icestream.write.target import WriteTarget, delete_file, without_history

_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def test_it_keeps_the_metadata_it_was_made_with(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", _SCHEMA, properties={"a": "1"})
    target = WriteTarget.of(table)
    with table.transaction() as change:
        change.set_properties({"a": "2"})
    assert target.table == "db.t"
    assert target.properties["a"] == "1"
    assert target.schema == table.schema()
    assert WriteTarget.of(table).write_id != target.write_id
    assert WriteTarget.of(table, "mine").write_id == "mine"


def test_workers_get_the_same_write_with_their_own_number(catalog: SqlCatalog) -> None:
    target = WriteTarget.of(catalog.create_table("db.t", _SCHEMA))
    worker = pickle.loads(pickle.dumps(target.for_task(3, 1)))
    assert (worker.task, worker.attempt, worker.write_id) == (3, 1, target.write_id)
    other = Schema(NestedField(2, "x", LongType(), required=False))
    assert worker.with_schema(other).schema == other
    assert worker.schema == target.schema


def test_what_is_not_a_table_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the table is a str: give a PyIceberg Table"):
        WriteTarget.of("db.t")  # type: ignore[arg-type]


def test_a_file_that_is_gone_is_not_an_error(catalog: SqlCatalog, tmp_path: Path) -> None:
    io = WriteTarget.of(catalog.create_table("db.t", _SCHEMA)).io
    path = tmp_path / "a.parquet"
    path.write_bytes(b"x")
    delete_file(io, f"file://{path}")
    assert not path.exists()
    delete_file(io, f"file://{path}")


def test_workers_get_the_table_without_its_history(catalog: SqlCatalog, tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    table = catalog.create_table("db.t", rows.schema)
    for _ in range(5):
        ice.append(table, rows)
    pruned = without_history(WriteTarget.of(table))
    assert pruned.metadata.snapshots == [table.current_snapshot()]
    assert pruned.metadata.schema() == table.schema()
    assert len(table.metadata.snapshots) == 5
