"""An open file: what it holds is on the account, and how its units decode."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.read.deletes.position_set import most_bytes
from icestream.read.deliver.units import OpenFile
from tests.support.delete_files import commit_deletion_vectors, commit_position_deletes
from tests.support.scans import ids_of
from tests.support.stream_tables import open_only_file
from tests.support.tables import add_parquet_file, data_file_paths, upgrade_to_v3

_ROWS = 20_000
_kinds = pytest.mark.parametrize("kind", ["parquet", "orc", "vector"])


def _table(catalog: Catalog, rows: int = _ROWS, **options: Any) -> Table:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = catalog.create_table("db.t", schema)
    texts = pa.array(f"text {i % 5}" for i in range(rows))
    add_parquet_file(table, pa.table([pa.array(range(rows)), texts], schema=schema), **options)
    return table


def _delete(table: Table, kind: str, positions: range) -> None:
    (path,) = data_file_paths(table)
    if kind == "vector":
        upgrade_to_v3(table)
        commit_deletion_vectors(table, {path: positions})
    else:
        commit_position_deletes(table, {path: positions}, file_format=kind)


def _open(table: Table, budget: MemoryBudget, batch_rows: int = _ROWS) -> OpenFile:
    return open_only_file(table, budget, batch_rows)


# Deleted positions


@_kinds
def test_deleted_positions_are_charged_while_the_file_is_open(catalog: Catalog, kind: str) -> None:
    table = _table(catalog)
    _delete(table, kind, range(0, _ROWS, 2))
    budget = MemoryBudget("4MB")
    file = _open(table, budget)
    file.units()
    footer_bytes = budget.held_bytes  # They are read when the first unit needs them.
    for _ in range(2):
        deleted = file.deleted().positions
        assert deleted.between(0, _ROWS).tolist() == list(range(0, _ROWS, 2))
        held = budget.held_bytes - footer_bytes
        assert held == deleted.nbytes < _ROWS, "once, however often they are asked for"
    file.close()
    assert budget.held_bytes == 0


@_kinds
def test_deleted_positions_beyond_the_limit_are_refused(catalog: Catalog, kind: str) -> None:
    table = _table(catalog)
    _delete(table, kind, range(_ROWS - 1))
    budget = MemoryBudget(most_bytes(_ROWS - 1, _ROWS) - 1)
    file = _open(table, budget)
    file.units()
    footer_bytes = budget.held_bytes
    with pytest.raises(ice.MemoryBudgetError, match="deleted positions of") as caught:
        file.deleted()
    assert caught.value.limit_bytes == budget.limit_bytes < caught.value.needed_bytes
    assert budget.peak_bytes == footer_bytes, "before they are read"
    file.close()
    assert budget.held_bytes == 0


def test_deleted_positions_that_just_fit_the_limit_are_taken(catalog: Catalog) -> None:
    table = _table(catalog)
    _delete(table, "vector", range(_ROWS - 1))
    budget = MemoryBudget(most_bytes(_ROWS - 1, _ROWS))
    file = _open(table, budget)
    file.units()
    footer_bytes = budget.held_bytes
    assert len(file.deleted().positions) == _ROWS - 1
    assert budget.held_bytes - footer_bytes < budget.limit_bytes
    file.close()


@_kinds
def test_many_deleted_positions_are_read_in_a_small_limit(catalog: Catalog, kind: str) -> None:
    """As integers they would take 4 MB; the rows themselves are read within 3 MB."""
    rows = 500_000
    table = _table(catalog, rows, row_group_rows=50_000, data_page_size=64 << 10)
    _delete(table, kind, range(rows - 1))
    budget = MemoryBudget("3MB")
    assert ids_of(ice.scan(table, memory=budget)) == [rows - 1]
    assert budget.held_bytes == 0


# Dictionaries


@pytest.mark.parametrize(
    ("batch_rows", "as_dictionary"), [(_ROWS, True), (8_192, True), (8_191, False)]
)
def test_strings_come_through_their_dictionary_unless_batches_are_small(
    catalog: Catalog, batch_rows: int, as_dictionary: bool
) -> None:
    file = _open(_table(catalog), MemoryBudget("64MB"), batch_rows)
    (unit,) = file.units()
    handle = file.shared.acquire()
    reader = unit.layout.make_reader(handle, batch_rows)
    batch = reader.step(1_000, False)
    assert batch is not None
    assert pa.types.is_dictionary(batch.schema.field("text").type) is as_dictionary
    assert batch.column("text").to_pylist() == [f"text {i % 5}" for i in range(1_000)]
    reader.close()
    file.shared.release()
    file.close()
