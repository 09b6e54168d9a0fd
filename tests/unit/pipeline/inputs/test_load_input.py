"""The files and tables that a load reads, and their columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

from icestream.errors import SourceError
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
