"""A scan as one object: what each method returns, and when it is refused."""

from __future__ import annotations

import sys

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice

ROWS = 60_000


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    """Rows with text, so that their size is only known when they are read."""
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "text": [f"row {n}, which has some text" for n in range(ROWS)],
            "price": [n / 4 for n in range(ROWS)],
        }
    )
    table = catalog.create_table("db.orders", rows.schema)
    for start in range(0, ROWS, ROWS // 3):
        ice.append(table, rows.slice(start, ROWS // 3))
    return table


def test_all_rows_come_as_a_table_a_frame_and_a_relation(orders: Table) -> None:
    scan = ice.scan(orders, where="id < 1000", memory="64MB")
    table = scan.to_arrow()
    assert table.schema == scan.schema
    assert sorted(table["id"].to_pylist()) == list(range(1000))
    assert isinstance(scan.to_pandas(), pd.DataFrame)
    assert scan.to_pandas()["price"].sum() == scan.to_polars()["price"].sum()
    assert scan.to_polars().schema["text"] == pl.String
    relation = scan.to_duckdb()
    for _ in range(2):  # Each query reads the table again.
        assert relation.aggregate("count(*), sum(id)").fetchall() == [(1000, 499_500)]


def test_a_relation_can_belong_to_any_connection(orders: Table) -> None:
    with duckdb.connect() as connection:
        relation = ice.scan(orders, columns=["id"]).to_duckdb(connection)
        relation.create("copied")
        assert connection.sql("select count(*) from copied").fetchall() == [(ROWS,)]


def test_options_of_pyarrow_reach_pandas(orders: Table) -> None:
    frame = ice.scan(orders, limit=10).to_pandas(types_mapper=pd.ArrowDtype)
    assert isinstance(frame.dtypes["id"], pd.ArrowDtype)


@pytest.mark.parametrize("method", ["to_arrow", "to_pandas", "to_polars"])
def test_a_result_that_does_not_fit_is_refused_with_a_limit_that_does(
    orders: Table, method: str
) -> None:
    scan = ice.scan(orders, memory="3MB")
    with pytest.raises(ice.MemoryBudgetError, match=r"rows of db\.orders take about") as refused:
        getattr(scan, method)()
    assert scan.report.rows < ROWS
    larger = ice.scan(orders, memory=refused.value.needed_bytes)
    assert len(getattr(larger, method)()) == ROWS
    assert larger.report.peak_bytes_held <= refused.value.needed_bytes
    assert refused.value.needed_bytes < 40_000_000


def test_columns_of_a_fixed_width_are_refused_before_anything_is_read(orders: Table) -> None:
    scan = ice.scan(orders, columns=["id", "price"], memory="900kB")
    with pytest.raises(ice.MemoryBudgetError, match="batch by batch") as refused:
        scan.to_arrow()
    with pytest.raises(ice.ScanClosedError, match="no report"):
        _ = scan.report
    enough = refused.value.needed_bytes
    assert ice.scan(orders, columns=["id", "price"], memory=enough).to_arrow().num_rows == ROWS


def test_what_was_collected_counts_in_a_shared_budget(orders: Table) -> None:
    budget = ice.MemoryBudget("32MB")
    other = budget.force(30_000_000)
    with pytest.raises(ice.MemoryBudgetError):
        ice.scan(orders, memory=budget).to_arrow()
    other.release()
    assert ice.scan(orders, memory=budget).to_arrow().num_rows == ROWS
    assert budget.held_bytes == 0


def test_the_head_of_a_scan_is_a_small_table(orders: Table) -> None:
    scan = ice.scan(orders, memory="8MB")
    assert scan.head().num_rows == 5
    assert scan.head(3)["id"].to_pylist() == scan.to_arrow()["id"].to_pylist()[:3]
    assert scan.head(0).schema == scan.schema
    assert ice.scan(orders, limit=2).head(7).num_rows == 2
    assert ice.read_splits(scan.splits()).head(4).num_rows == 4
    with pytest.raises(ice.InvalidArgumentError, match="n is -1"):
        scan.head(-1)


def test_rows_are_counted_with_filters_limits_and_splits(orders: Table) -> None:
    assert ice.scan(orders).count() == ROWS
    assert ice.scan(orders, where="id < 777").count() == 777
    assert ice.scan(orders, where="text = 'row 5, which has some text'").count() == 1
    assert ice.scan(orders, limit=9).count() == 9
    assert ice.scan(orders, where="id < 777", limit=9).count() == 9
    assert ice.read_splits(ice.scan(orders).splits()).count() == ROWS
    ice.delete(orders, "id >= 10 and id < 20")
    assert ice.scan(orders, columns=["text"], metadata_columns=["_file"]).count() == ROWS - 10
    assert ice.scan(orders, where="id < 15").count() == 10


def test_rows_deleted_by_position_are_not_counted(orders: Table) -> None:
    orders.transaction().set_properties({"write.delete.mode": "merge-on-read"}).commit_transaction()
    assert ice.delete(orders, "id >= 10 and id < 20").delete_files_added == 1
    scan = ice.scan(orders, columns=["text"])
    assert scan.count() == ROWS - 10
    assert scan.to_arrow().num_rows == ROWS - 10


def test_an_empty_table_has_empty_results(catalog: SqlCatalog) -> None:
    scan = ice.scan(catalog.create_table("db.empty", pa.schema([("id", pa.int64())])))
    assert scan.count() == 0
    assert scan.to_arrow() == scan.head() == pa.table({"id": pa.array([], pa.int64())})
    assert scan.to_pandas().empty
    assert scan.to_duckdb().fetchall() == []


def test_a_closed_scan_has_no_results(orders: Table) -> None:
    scan = ice.scan(orders)
    scan.close()
    for method in (scan.to_arrow, scan.to_pandas, scan.to_polars, scan.head, scan.count):
        with pytest.raises(ice.ScanClosedError):
            method()


@pytest.mark.parametrize(
    ("method", "module", "package"),
    [
        ("to_pandas", "pandas", "pandas"),
        ("to_polars", "polars", "icestream[peers]"),
        ("to_duckdb", "duckdb", "icestream[duckdb]"),
    ],
)
def test_a_missing_package_is_named_in_one_line(
    orders: Table, monkeypatch: pytest.MonkeyPatch, method: str, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ice.MissingExtraError) as missing:
        getattr(ice.scan(orders), method)()
    assert str(missing.value) == f"{method}() needs {module}: pip install '{package}'"
