"""The files and tables that a load reads, and their columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import SourceError, UnknownColumnError
from tests.support.load_cases import CASES, Load, outcome, rows_in


def test_tables_and_streams_are_sources(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    reports = CASES["from_tables_and_streams"](load, tmp_path)
    assert [report.rows_inserted for report in reports] == [30, 20, 35]
    assert len(rows_in(catalog)) == 55


def test_folders_are_columns_unless_they_are_left_out(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    result = outcome(CASES["hive_folders"](load, data), catalog, data)
    assert result.columns["db.t"][-3:] == ["month int", "year int", "key int"]
    assert (6, 3.0, "SE", 2, None, None) in result.rows["db.t"]
    assert (300, 1.5, None, 3, 2026, None) in result.rows["db.t"]
    assert result.columns["db.typed"][-2:] == ["day date", "at timestamptz"]
    assert result.rows["db.incremental"] == [(0, 0.0, "SE", "7"), (1, 0.5, "NO", "x y")]
    assert result.columns["db.plain"] == ["id long", "price double", "country string"]
    assert [report["rows_inserted"] for report in result.reports] == [11, 1, 1, 2, 2, 2, 0, 1]


def test_a_column_of_folders_has_the_type_of_the_table(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    def put(value: str) -> None:
        (tmp_path / f"data/key={value}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"data/key={value}/a.parquet")

    put("07")
    put("x")
    load(tmp_path / "data", "db.t", incremental=True)
    put("08")  # by itself a number: it is text in the table, and must stay as it is written
    load(tmp_path / "data", "db.t", incremental=True)
    assert [row["key"] for row in rows_in(catalog)] == ["07", "08", "x"]
    load(tmp_path / "data/key=07", "db.numbers")
    with pytest.raises(SourceError, match=r"value 'x' for 'key', and the column is int32"):
        load(tmp_path / "data/key=x", "db.numbers")


def test_a_type_for_a_column_that_does_not_exist_is_refused(
    catalog: Catalog, tmp_path: Path
) -> None:
    def load(name: str, into: str, **types: str) -> None:
        ice.load(tmp_path / name, into, catalog=catalog, engine="local", state="", schema=types)

    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1/a.csv").write_text("id,price\n1,2\n")
    (tmp_path / "header.csv").write_text("id,price\n")
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    wrong = r"^schema names 'idd', but the source has no such column: did you mean 'id'\?$"
    with pytest.raises(UnknownColumnError, match=wrong):
        load("day=1/a.csv", "db.t", idd="long")
    with pytest.raises(UnknownColumnError, match=r"no such column: it has id, price, day$"):
        load("day=1/a.csv", "db.t", country="string")
    load("day=1/a.csv", "db.t", id="long", day="string")
    load("header.csv", "db.header", id="long", price="double")
    load("a.json", "db.json", id="long", price="double")  # later lines may have it
    load("a.json", "db.t", id="long", country="string")
    (tmp_path / "b.csv").write_text("id\n2\n")
    load("b.csv", "db.t", id="long", price="double")  # the table has it
