"""The columns of many files, decided once: given, of the table, or guessed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.errors import (
    SchemaMismatchError,
)
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources.file_columns import KnownTypes, columns_of, plain_type
from icestream.write.sources.source_file import find_files
from tests.support.source_rows import rows_of


def test_text_is_read_as_what_the_table_has(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "day,code,price,at,empty\n2026-11-16,007,1.10,2026-11-16 08:00,\n"
    )
    (tmp_path / "b.json").write_text('{"day": "2026-11-17", "code": "NA", "price": "2.20"}\n')
    table = pa.schema(
        [
            ("day", pa.date32()),
            ("code", pa.large_string()),
            ("price", pa.decimal128(10, 2)),
            ("later", pa.int64()),
        ]
    )
    rows = rows_of(tmp_path, known=KnownTypes(table=table))
    assert rows == [
        {
            "day": dt.date(2026, 11, 16),
            "code": "007",
            "price": Decimal("1.10"),
            "at": dt.datetime(2026, 11, 16, 8),
            "empty": None,
            "later": None,
        },
        {
            "day": dt.date(2026, 11, 17),
            "code": "NA",
            "price": Decimal("2.20"),
            "at": None,
            "empty": None,
            "later": None,
        },
    ]
    merged = columns_of(
        find_files(SourceSpec.parse(tmp_path), {}), KnownTypes(table=table, fills=False)
    )
    assert "later" not in merged.names


def test_files_whose_columns_differ_are_one_stream(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([2], pa.int64()), "b": ["x"]}), tmp_path / "2.parquet")
    assert rows_of(tmp_path) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "3.parquet")
    with pytest.raises(SchemaMismatchError, match="do not go together"):
        rows_of(tmp_path)


def test_given_types_come_before_the_tables_and_guesses_come_last(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n")
    known = KnownTypes(
        given=pa.schema([("a", pa.string())]),
        table=pa.schema([("a", pa.float64()), ("b", pa.float64())]),
    )
    columns = columns_of(find_files(SourceSpec.parse(tmp_path), {}), known)
    assert columns == pa.schema([("a", pa.string()), ("b", pa.float64()), ("c", pa.int64())])


def test_a_column_of_nulls_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": null, "b": [{"c": null}]}\n')
    columns = columns_of(find_files(SourceSpec.parse(tmp_path), {}), KnownTypes())
    inner = pa.struct([("c", pa.string())])
    assert columns == pa.schema([("a", pa.string()), ("b", pa.list_(pa.field("element", inner)))])


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("ns"), pa.timestamp("ns")),
        (pa.date64(), pa.date32()),
        (pa.large_list(pa.int16()), pa.list_(pa.field("element", pa.int32()))),
        (pa.decimal256(20, 2), pa.decimal128(20, 2)),
        (pa.uuid(), pa.uuid()),
    ],
)
def test_stored_types_become_the_nearest_type_of_a_table(
    stored: pa.DataType, expected: pa.DataType
) -> None:
    assert plain_type(stored) == expected
