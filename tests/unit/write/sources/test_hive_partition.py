"""Columns that folder names hold: which folders count, and the types that Spark gives."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.errors import SourceError
from icestream.write.sources.file_stream import SourceFiles
from icestream.write.sources.hive_partition import NULL_NAME, PartitionColumns, partition_values

_MOMENT = pa.timestamp("us", "UTC")
# What Spark 4.3 makes of folders `p=...`: tests/spark/test_hive_partitions.py compares.
_TYPED: list[tuple[list[str], pa.DataType, list[Any]]] = [
    (["1"], pa.int32(), [1]),
    (["01"], pa.int32(), [1]),
    (["+5"], pa.int32(), [5]),
    (["\uff11"], pa.int32(), [1]),
    (["2147483648"], pa.int64(), [2147483648]),
    (["12345678901234567890"], pa.decimal128(20, 0), [Decimal("12345678901234567890")]),
    (["1e3"], pa.decimal128(4, 0), [Decimal(1000)]),
    (["5."], pa.decimal128(1, 0), [Decimal(5)]),
    (["1" * 39], pa.float64(), [float("1" * 39)]),
    (["1e-3"], pa.float64(), [0.001]),
    (["1.50"], pa.float64(), [1.5]),
    (["1f"], pa.float64(), [1.0]),
    (["1 "], pa.float64(), [1.0]),
    (["Infinity"], pa.float64(), [float("inf")]),
    (["1e400"], pa.float64(), [float("inf")]),
    (["0x10"], pa.string(), ["0x10"]),
    (["1_0"], pa.string(), ["1_0"]),
    (["2025-01-01"], pa.date32(), [date(2025, 1, 1)]),
    (["2025-02-30"], pa.string(), ["2025-02-30"]),
    (["2025-1-1"], pa.string(), ["2025-1-1"]),
    (["2025-01-01 10:00:00"], _MOMENT, [datetime(2025, 1, 1, 10, tzinfo=UTC)]),
    (["2025-01-01 10%3A00%3A00.5"], _MOMENT, [datetime(2025, 1, 1, 10, 0, 0, 500_000, UTC)]),
    (["2025-01-01 10:00:00.123"], pa.string(), ["2025-01-01 10:00:00.123"]),
    (["true"], pa.string(), ["true"]),
    (["a%20b%2Fc"], pa.string(), ["a b/c"]),
    (["%31"], pa.string(), ["1"]),
    (["%C3%A4", "%E4", "a%zz"], pa.string(), ["ä", "ä", "a%zz"]),
    (["1=2"], pa.string(), ["1=2"]),
    ([NULL_NAME], pa.string(), [None]),
    (["1", NULL_NAME], pa.int32(), [1, None]),
    (["01", "a"], pa.string(), ["01", "a"]),
    (["1", "2147483648"], pa.int64(), [1, 2147483648]),
    (["1", "1.5"], pa.float64(), [1.0, 1.5]),
    (["2147483648", "1.5"], pa.string(), ["2147483648", "1.5"]),
    (["1", "12345678901234567890"], pa.decimal128(20, 0), [Decimal(1), None]),
    (["1.5", "12345678901234567890"], pa.string(), ["1.5", None]),
    (["1", "2025-01-01"], pa.string(), ["1", "2025-01-01"]),
    (["2025-01-01", "2025-01-01 10:00:00"], _MOMENT, [datetime(2025, 1, 1, tzinfo=UTC), None]),
]


def _columns(values: list[str], known: pa.DataType | None = None) -> tuple[pa.DataType, list[Any]]:
    pairs = [partition_values(f"/d/p={value}/a.parquet", "/d") for value in values]
    made = PartitionColumns.of(pairs, lambda name: known)
    batch = pa.RecordBatch.from_pydict({"x": [1]})
    rows = [made.put(pair, "f")(batch).column("p")[0].as_py() for pair in pairs]
    return made.schema.field("p").type, rows


@pytest.mark.parametrize(("values", "kind", "expected"), _TYPED, ids=lambda each: str(each)[:40])
def test_values_have_the_type_that_spark_gives(
    values: list[str], kind: pa.DataType, expected: list[Any]
) -> None:
    found, rows = _columns(values)
    assert found == kind
    assert rows[0] == expected[0]
    assert all(wanted in (row, None) for row, wanted in zip(rows, expected, strict=True))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("01", pa.string(), "01"),
        ("7", pa.int64(), 7),
        ("7", pa.float64(), 7.0),
        ("7.5", pa.decimal128(10, 2), Decimal("7.50")),
        ("2025-01-01", pa.timestamp("us"), datetime(2025, 1, 1)),
        ("2025-01-01", _MOMENT, datetime(2025, 1, 1, tzinfo=UTC)),
        ("true", pa.bool_(), True),
        (NULL_NAME, pa.int64(), None),
    ],
)
def test_a_known_type_counts_more_than_what_values_look_like(
    value: str, kind: pa.DataType, expected: Any
) -> None:
    assert _columns([value], kind) == (kind, [expected])


def test_a_value_that_is_not_of_the_known_type_is_an_error_with_its_file() -> None:
    with pytest.raises(SourceError, match=r"'f' has the value 'x' for 'p', and the column is int"):
        _columns(["x"], pa.int32())


@pytest.mark.parametrize(
    ("path", "base", "expected"),
    [
        ("/d/y=1/m=2/a.csv", "/d", {"y": "1", "m": "2"}),
        ("/d/y=1/m=2/a.csv", "/d/", {"y": "1", "m": "2"}),
        ("/d/y=1/m=2/a.csv", "/d/y=1", {"y": "1", "m": "2"}),
        ("/d/y=1/m=2/a.csv", "/d/y=1/m=2", {"y": "1", "m": "2"}),
        ("/d/y=1/part/a.csv", "/d", {"y": "1"}),
        ("/d/y=1/part/m=2/a.csv", "/d", {"m": "2"}),
        ("/env=prod/raw/y=1/a.csv", "/env=prod/raw", {"y": "1"}),
        ("/env=prod/raw/a.csv", "/env=prod/raw", {}),
        ("/d/a=b.csv", "/d", {}),
        ("s3://b/d/y%20z=1/a.csv", "s3://b/d", {"y z": "1"}),
    ],
)
def test_folders_below_the_listed_one_and_next_to_it_count(
    path: str, base: str, expected: dict[str, str]
) -> None:
    assert dict(partition_values(path, base)) == expected


@pytest.mark.parametrize("folder", ["y=", "=1", "y=1/Y=2"])
def test_folders_that_can_not_be_columns_are_refused(folder: str) -> None:
    with pytest.raises(SourceError, match="hive_partitions=False"):
        partition_values(f"/d/{folder}/a.csv", "/d")


def test_the_column_of_a_folder_counts_more_than_that_of_a_file() -> None:
    pair = partition_values("/d/p=1/a.parquet", "/d")
    made = PartitionColumns.of([pair], lambda name: None)
    batch = pa.RecordBatch.from_pydict({"P": ["file"], "x": [1]})
    assert made.put(pair, "f")(batch).to_pydict() == {"p": [1], "x": [1]}
    assert made.over(batch.schema).names == ["p", "x"]


def test_a_stream_of_files_has_the_columns_of_their_folders(tmp_path: Path) -> None:
    for year, month in ((2024, "01"), (2025, "12")):
        folder = tmp_path / f"year={year}" / f"_month={month}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), folder / "a.parquet")
    found = SourceFiles([tmp_path])
    assert found.schema.names == ["id", "year", "_month"]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert rows == [
        {"id": 2024, "year": 2024, "_month": 1},
        {"id": 2025, "year": 2025, "_month": 12},
    ]
    glob = SourceFiles([str(tmp_path / "year=2025" / "*" / "*.parquet")])
    assert [row for batch in glob for row in batch.to_pylist()] == rows[1:]
    assert SourceFiles([tmp_path], hive_partitions=False).schema.names == ["id"]
