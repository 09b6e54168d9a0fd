"""`select` and `where` of a load, in this process."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.write.sources.stored_batches import StoredFile
from tests.support.load_cases import CASES, Load, orders


@pytest.fixture
def load(catalog: Catalog) -> Load:
    def run(*arguments: Any, **options: Any) -> ice.LoadReport:
        report = ice.load(*arguments, engine="local", catalog=catalog, state="", **options)
        assert isinstance(report, ice.LoadReport)
        return report

    return run


def _rows(catalog: Catalog, name: str = "db.t") -> list[dict[str, Any]]:
    return sorted(catalog.load_table(name).scan().to_arrow().to_pylist(), key=str)


def test_rows_are_filtered_and_columns_renamed_cast_and_added(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    reports = CASES["selected_columns"](load, tmp_path)
    assert [report.status for report in reports[:3]] == ["loaded", "already loaded", "loaded"]
    assert (reports[0].rows_read, reports[0].rows_inserted) == (40, 20)
    assert (reports[3].rows_read, reports[3].rows_inserted, reports[3].rows_quarantined) == (
        4,
        2,
        1,
    )
    by_key = {row["key"]: row for row in _rows(catalog)}
    assert by_key["10"] == {
        "key": "10",
        "price": Decimal("5.00"),
        "x": 10,
        "month": 1,
        "origin": "shop",
    }
    assert by_key["007"]["price"] == Decimal("1.50"), "text keeps its zeros"
    assert len(_rows(catalog, "db.sql")) == 22 + 2 + 3
    assert {row["n"] for row in _rows(catalog, "db.sql")} == {4}


def test_columns_that_are_not_needed_are_not_read_from_parquet(
    load: Load, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested = [{"a": n, "b": [n]} for n in range(9)]
    pq.write_table(orders(0, 9, nested=nested, last=["x"] * 9), tmp_path / "a.parquet")
    read: list[tuple[str, ...]] = []
    batches = StoredFile.batches

    def watched(file: StoredFile) -> Any:
        for batch in batches(file):
            read.append(tuple(batch.schema.names))
            yield batch

    monkeypatch.setattr(StoredFile, "batches", watched)
    load(tmp_path / "a.parquet", "db.t", select=["last", "nested"], where="id > 3")
    load(tmp_path / "a.parquet", "db.c", select=[{"name": "a", "value": 1}])
    assert read == [("id", "nested", "last"), ("id",)]
    assert _rows(catalog) == [{"last": "x", "nested": each} for each in nested[4:]]
    assert len(_rows(catalog, "db.c")) == 9


def test_a_value_that_does_not_fit_stops_the_load_and_leaves_the_table(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1, 2], "amount": [1.5, 2.555]}), tmp_path / "a.parquet")
    select = [{"name": "price", "from": "amount", "type": "decimal(10,2)"}]
    with pytest.raises(ice.InvalidDataError, match=r"'price' has the value '2\.555'"):
        load(tmp_path / "a.parquet", "db.t", select=select)
    assert not catalog.table_exists("db.t")
    load(tmp_path / "a.parquet", "db.t", select=select, where="id < 2")
    assert _rows(catalog) == [{"price": Decimal("1.50")}]


def test_text_is_read_in_the_types_of_the_columns_that_it_becomes(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n001,1.10,002\n")
    catalog.create_table("db.t", pa.schema([("x", pa.string()), ("y", pa.string())]))
    twice = [{"name": "x", "from": "a"}, {"name": "y", "from": "c", "type": "string"}]
    load(tmp_path / "a.csv", "db.t", select=twice)
    assert _rows(catalog) == [{"x": "001", "y": "002"}]
    both = [{"name": "m", "from": "a", "type": "int"}, {"name": "n", "from": "a", "type": "string"}]
    load(tmp_path / "a.csv", "db.both", select=both)
    assert _rows(catalog, "db.both") == [{"m": 1, "n": "001"}]


def test_unknown_columns_are_named_before_rows_are_read(load: Load, tmp_path: Path) -> None:
    pq.write_table(orders(0, 3), tmp_path / "a.parquet")
    with pytest.raises(ice.UnknownColumnError, match="did you mean 'country'"):
        load(tmp_path / "a.parquet", "db.t", select=["contry"])
    with pytest.raises(ice.UnknownColumnError, match="did you mean 'country'"):
        load(tmp_path / "a.parquet", "db.t", where="contry = 'NO'")
