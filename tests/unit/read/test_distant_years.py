"""Dates and timestamps before the year 1 and after 9999: written, read, filtered and merged."""

from __future__ import annotations

from urllib.parse import unquote_plus

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.expressions.literals import DateLiteral
from pyiceberg.table import Table

import icestream as ice
from icestream.read.distant_years import shown_values
from icestream.write.partition.spec_text import sort_order
from tests.support.distant_years import FILTERS, PARTITIONS, SCHEMA, distant_rows, distant_table
from tests.support.tables import data_files


def _rows(table: Table, where: str | None = None) -> pa.Table:
    scan = ice.scan(table, where=where) if where else ice.scan(table)
    return scan.to_reader().read_all().sort_by("id")


def _ids(table: Table, where: str | None = None) -> list[int]:
    ids: list[int] = _rows(table, where).column("id").to_pylist()
    return ids


@pytest.mark.parametrize("partition", [None, *PARTITIONS])
def test_every_year_is_written_read_filtered_and_deleted(
    catalog: SqlCatalog, partition: str | None
) -> None:
    table = distant_table(catalog, partition)
    ice.append(table, distant_rows())
    assert _rows(table).equals(distant_rows())
    for where, matching in FILTERS.items():
        assert _ids(table, where) == matching, where
    ice.delete(table, "d = '20000-06-06'")
    assert _ids(table) == [0, 1, 2, 3, 4, 6]
    if partition is not None:
        ice.overwrite(table, distant_rows(10), partitions="dynamic")
        assert set(_ids(table)) >= set(range(10, 17))
    ice.compact(table)
    assert ice.health(table).files


@pytest.mark.parametrize("partition", [None, "year(d)", "month(ts)", "day(d)", "hour(tz)", "d"])
@pytest.mark.parametrize("key", ["id", "d", "ts", "tz"])
def test_rows_of_every_year_are_merged(
    catalog: SqlCatalog, partition: str | None, key: str
) -> None:
    table = distant_table(catalog, partition)
    ice.append(table, distant_rows())
    rows = distant_rows(0 if key == "id" else 100).slice(0, 6)
    report = ice.merge(table, rows, on=key)
    assert report.rows_inserted == 0
    ids = list(range(6)) if key == "id" else list(range(100, 106))
    assert sorted(_ids(table)) == sorted([*ids, 6])


@pytest.mark.parametrize("key", ["d", "ts", "tz"])
def test_a_merge_skips_files_by_dates_that_python_does_not_have(
    catalog: SqlCatalog, key: str
) -> None:
    table = distant_table(catalog)
    for number in range(6):
        ice.append(table, distant_rows().slice(number, 1))
    report = ice.merge(table, distant_rows(10).slice(5, 1), on=key)
    assert (report.rows_updated, report.files_removed, report.files_read) == (1, 1, 1)


def test_the_bounds_of_files_are_exact(catalog: SqlCatalog) -> None:
    table = distant_table(catalog)
    ice.append(table, distant_rows())
    (file,) = data_files(table)
    numbers = [pa.array(distant_rows()[name]).drop_null() for name in ("d", "ts", "tz")]
    for field_id, column in zip((2, 3, 4), numbers, strict=True):
        whole = column.view(pa.int32() if field_id == 2 else pa.int64()).to_pylist()
        assert int.from_bytes(file.lower_bounds[field_id], "little", signed=True) == min(whole)
        assert int.from_bytes(file.upper_bounds[field_id], "little", signed=True) == max(whole)
        assert file.null_value_counts[field_id] == 1


def test_files_are_skipped_by_dates_that_python_does_not_have(catalog: SqlCatalog) -> None:
    table = distant_table(catalog, "year(d)")
    ice.append(table, distant_rows())
    assert ice.scan(table, where="d > '15000-01-01'").explain().files == 1
    by_number = EqualTo("d", DateLiteral(-2_440_550))
    assert ice.scan(table, where=by_number).explain().files == 1


@pytest.mark.parametrize(
    ("partition", "folders"),
    [
        ("year(d)", {"d_year=-4712", "d_year=0000", "d_year=20000"}),
        ("day(d)", {"d_day=-4712-01-01", "d_day=0000-12-31", "d_day=20000-06-06"}),
        ("hour(ts)", {"ts_hour=-044-03-15-10", "ts_hour=20000-06-06-01"}),
        ("tz", {"tz=-044-03-15T10:00:00.000001+00:00", "tz=20000-06-06T01:00:00+00:00"}),
    ],
)
def test_folders_of_partitions_show_the_year(
    catalog: SqlCatalog, partition: str, folders: set[str]
) -> None:
    table = distant_table(catalog, partition)
    ice.append(table, distant_rows())
    assert folders <= {unquote_plus(f.file_path.split("/")[-2]) for f in data_files(table)}


@pytest.mark.parametrize("column", ["d", "ts", "tz"])
def test_rows_of_every_year_are_sorted(catalog: SqlCatalog, column: str) -> None:
    order = sort_order([f"{column} desc nulls last"], SCHEMA)
    table = catalog.create_table("db.sorted", SCHEMA, sort_order=order)
    rows = pa.concat_tables([distant_rows(number * 10) for number in range(3)])
    ice.append(table, rows, memory="16MB")
    batches = [batch.column("id").to_pylist() for batch in ice.scan(table)]
    assert [number % 10 for ids in batches for number in ids] == [
        number for number in (5, 4, 3, 2, 1, 0, 6) for _ in range(3)
    ]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("d = '10000-13-01'", "write a date such as"),
        ("d = '99999999-01-01'", "out of range"),
        ("ts = '300000-01-01T00:00:00'", "out of range"),
        ("ts = '10000-01-01T00:00:00+00:00'", "write a timestamp such as"),
    ],
)
def test_a_filter_with_a_wrong_date_is_refused(catalog: SqlCatalog, where: str, why: str) -> None:
    with pytest.raises(ice.errors.InvalidArgumentError, match=why):
        ice.scan(distant_table(catalog), where=where)


def test_a_duplicate_key_of_a_distant_year_is_shown(catalog: SqlCatalog) -> None:
    rows = pa.concat_tables([distant_rows(), distant_rows(10)]).filter(
        pa.compute.field("id").isin([5, 15])
    )
    with pytest.raises(ice.errors.DuplicateKeysError, match="20000-06-06"):
        ice.merge(distant_table(catalog), rows, on="d")


def test_values_that_python_does_not_have_are_shown_as_text() -> None:
    days = distant_rows()["d"].combine_chunks()
    shown = shown_values(days)
    assert [str(day) for day in shown[:5]] == [
        *("-4712-01-01", "0000-12-31", "2020-05-05", "9999-12-31", "10000-01-01"),
    ]
    assert shown[6] is None
    nested = pa.StructArray.from_arrays([days], names=["d"])
    assert shown_values(nested)[5] == {"d": "20000-06-06"}
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 7], pa.int32()), days)
    assert shown_values(lists)[0] == ["-4712-01-01"]
    maps = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a"]), days.slice(0, 1))
    assert shown_values(maps) == [[("a", "-4712-01-01")]]
