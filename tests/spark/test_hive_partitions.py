"""Columns that folder names hold have the types and values that Spark gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.spark.arrow.frame_schema import arrow_schema
from icestream.write.sources.file_stream import SourceFiles
from icestream.write.sources.hive_partition import NULL_NAME

# Two values of each column, of two files.
_VALUES = [
    ("1", "01"),
    ("1", "2147483648"),
    ("1", "12345678901234567890"),
    ("1e3", "5."),
    ("1", "1.5"),
    ("2147483648", "1.5"),
    ("1.5", "12345678901234567890"),
    ("1f", "Infinity"),
    ("1", "2025-01-01"),
    ("2025-01-01", "2024-02-29"),
    ("2025-01-01", "2025-01-01 10%3A00%3A00"),
    ("2025-01-01 10%3A00%3A00.5", NULL_NAME),
    ("2025-02-30", "2025-1-1"),
    ("a%20b", "%31"),
    ("true", "0x10"),
    ("1", NULL_NAME),
    ("01", "a"),
]


def test_folders_are_columns_as_spark_makes_them(spark: Any, tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path
        for column, values in enumerate(_VALUES):
            folder /= f"c{column}={values[number]}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), folder / "a.parquet")
    frame = spark.read.parquet(str(tmp_path))
    ours = SourceFiles([tmp_path])
    theirs = arrow_schema(frame.schema)
    assert {each.name: each.type for each in ours.schema} == {
        each.name: each.type for each in theirs
    }
    rows = sorted((row for batch in ours for row in batch.to_pylist()), key=lambda row: row["id"])
    texts = frame.selectExpr(*(f"cast({name} AS string) AS {name}" for name in ours.schema.names))
    found = sorted((row.asDict() for row in texts.collect()), key=lambda row: row["id"])
    for ours_row, theirs_row in zip(rows, found, strict=True):
        assert {name: _text(value) for name, value in ours_row.items()} == theirs_row


def _text(value: Any) -> str | None:
    """A value as Spark's cast to text writes it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float):
        return "Infinity" if value == float("inf") else str(value)
    return str(value).removesuffix("+00:00").removesuffix("00000")
