"""A unit becomes finished batches: projected, without deleted rows, filtered and joined."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.memory.budget import MemoryBudget
from icestream.read.deliver.stream import Step, UnitStream
from tests.support.delete_files import commit_position_deletes
from tests.support.stream_tables import open_only_file
from tests.support.tables import add_orc_file, add_parquet_file, data_file_paths

_ROWS = 1_000
_add = pytest.mark.parametrize("add", [add_parquet_file, add_orc_file], ids=["parquet", "orc"])


def _table(catalog: Catalog, add: Any, text: str = "") -> Table:
    schema = pa.schema([("id", pa.int64()), ("tenth", pa.int64()), ("text", pa.string())])
    table = catalog.create_table("db.t", schema)
    ids = list(range(_ROWS))
    rows = {"id": ids, "tenth": [i % 10 for i in ids], "text": [text or f"row {i}" for i in ids]}
    add(table, pa.table(rows, schema=schema))
    return table


def _read(
    table: Table,
    rows: int,
    *,
    batch_rows: int = _ROWS,
    most_bytes: int = 1 << 20,
    memory: str = "256MB",
    **options: Any,
) -> tuple[list[Step], list[pa.RecordBatch]]:
    """All steps of the only unit, and its batches."""
    budget = MemoryBudget(memory)
    file = open_only_file(table, budget, batch_rows, **options)
    (unit,) = file.units()
    stream = UnitStream(unit)
    steps = []
    while (step := stream.step(rows, False, most_bytes)) is not None:
        steps.append(step)
    batches = [batch for step in steps for batch in step.batches] + stream.flush()
    stream.close()
    file.close()
    assert budget.held_bytes == 0
    return steps, batches


def _ids(batches: list[pa.RecordBatch]) -> list[int]:
    return [i for batch in batches for i in batch.column("id").to_pylist()]


@_add
@pytest.mark.parametrize("rows", [1, 64, 5_000])
def test_steps_deliver_every_row_in_order(catalog: Catalog, add: Any, rows: int) -> None:
    steps, batches = _read(_table(catalog, add), rows)
    assert _ids(batches) == list(range(_ROWS))
    assert sum(step.rows for step in steps) == _ROWS
    assert all(step.decoded_bytes > 0 for step in steps)


@_add
def test_deleted_and_filtered_rows_are_dropped_and_columns_of_the_filter_too(
    catalog: Catalog, add: Any
) -> None:
    table = _table(catalog, add)
    (path,) = data_file_paths(table)
    commit_position_deletes(table, {path: [3, 13, 999]})
    _, batches = _read(table, 100, where="tenth = 3", columns=["id"])
    assert _ids(batches) == [i for i in range(3, _ROWS, 10) if i not in (3, 13)]
    assert batches[0].schema.names == ["id"]


def test_positions_are_those_in_the_file_after_rows_were_dropped(catalog: Catalog) -> None:
    table = _table(catalog, add_parquet_file)
    options: dict[str, Any] = {"where": "tenth = 3", "metadata_columns": ["_pos"]}
    _, batches = _read(table, 64, **options)
    assert all(batch.column("_pos").equals(batch.column("id")) for batch in batches)
    assert _ids(batches) == list(range(3, _ROWS, 10))


def test_small_remainders_wait_until_they_make_half_a_batch(catalog: Catalog) -> None:
    table = _table(catalog, add_parquet_file)
    steps, batches = _read(table, 100, batch_rows=50, where="tenth = 3")
    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
    assert [len(step.batches) for step in steps] == [0, 0, 1] * 3 + [0]
    assert [step.waiting_bytes > 0 for step in steps] == [True, True, False] * 3 + [True]


def test_long_values_of_a_dictionary_are_expanded_in_parts(catalog: Catalog) -> None:
    table = _table(catalog, add_parquet_file, text="x" * 10_000)
    steps, batches = _read(table, _ROWS, most_bytes=100_000, memory="16MB")
    assert max(step.rows for step in steps) <= 10
    assert _ids(batches) == list(range(_ROWS))
    assert set(batches[-1].column("text").to_pylist()) == {"x" * 10_000}
