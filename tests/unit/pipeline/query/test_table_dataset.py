"""A table is scanned with the columns and filters that DuckDB pushes down."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.pipeline.query.table_dataset import TableDataset
from tests.support.loads import ids, make_table
from tests.support.stored import folder_of


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    for start in (0, 100, 200):
        ice.append(table, ids(start, start + 100))
    return table


def test_a_filter_reads_only_files_that_may_match(table: Table) -> None:
    dataset = TableDataset(table, MemoryBudget("64MB"), lambda error: None)
    kept = (pc.field("id") >= 150) & pc.starts_with(pc.field("text"), "text 25")
    rows = dataset.scanner(columns=["part", "id"], filter=kept).to_reader().read_all()
    assert rows.column_names == ["part", "id"]
    assert rows["id"].to_pylist() == list(range(250, 260))
    assert dataset.scans[0].report.files == 2
    assert dataset.scanner(columns=["id"]).to_reader().read_all().num_rows == 300
    assert dataset.scanner().to_reader().schema == dataset.schema
    dataset.close()


def test_an_error_of_a_scan_is_passed_on_as_it_is(table: Table) -> None:
    for path in folder_of(table).rglob("*.parquet"):
        path.unlink()
    errors: list[BaseException] = []
    dataset = TableDataset(table, MemoryBudget("64MB"), errors.append)
    with pytest.raises(Exception, match="parquet"):
        dataset.scanner().to_reader().read_all()
    assert isinstance(errors[0], ice.FileMissingError)
