"""CSV and JSON lines: the syntax that options describe, and one record on each line."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icestream.errors import (
    InvalidArgumentError,
    SourceError,
)
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources.bad_record import BadRecord
from icestream.write.sources.file_columns import KnownTypes
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.source_file import SourceFile, find_files
from icestream.write.sources.text.text_format import CsvFormat, CsvParser, JsonParser
from tests.support.source_rows import rows_of

BAD_OBJECTS = [
    "null",
    "[1]",
    "1",
    '{"a": 1',
    '{"a": 1} null',
    '{"a": 1} {"a": 2}',
    '{"a": 1},',
    '{"a": 1, "a": 2}',
    '{"a": "text"}',
    '{"a": 1.5}',
    '{"unknown": 1}',
    "not json",
]


@pytest.mark.parametrize("line", BAD_OBJECTS)
def test_a_line_that_is_no_object_of_the_columns_is_bad(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": 1, "b": "}} x {{"}}\n{line}\n{{"a": 3, "b": "null"}}\n')
    known = KnownTypes(given=pa.schema([("a", pa.int64()), ("b", pa.string())]))
    bad: list[BadRecord] = []
    reader = FileRows(known.given, find_files(SourceSpec.parse(path), {}).store)
    file = SourceFile(str(path), "json", path.stat().st_size)
    rows = [row for batch in reader.read([file], bad.append) for row in batch.to_pylist()]
    assert rows == [{"a": 1, "b": "} x {"}, {"a": 3, "b": "null"}]
    assert [(each.line, each.record) for each in bad] == [(2, line)]


def test_options_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1;'a;b';-\n2;'line\nbreak';3\n")
    source = {
        "path": str(path),
        "format": "csv",
        "options": {
            "delimiter": ";",
            "quote": "'",
            "header": False,
            "columns": ["id", "text", "n"],
            "nulls": ["-"],
            "multiline": True,
        },
    }
    known = KnownTypes(
        given=pa.schema([("id", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
    )
    assert rows_of(source, known=known) == [
        {"id": 1, "text": "a;b", "n": None},
        {"id": 2, "text": "line\nbreak", "n": 3},
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ";;"}, "delimiter is ';;'"),
        ({"quote": "ä"}, "one ASCII character"),
        ({"header": "maybe"}, "header is 'maybe': give true or false"),
        ({"header": False}, "needs names for its columns"),
    ],
)
def test_options_that_have_no_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        CsvFormat.of(options)


def test_options_may_be_text_as_on_the_command_line() -> None:
    csv = CsvFormat.of({"header": "FALSE", "columns": ["a", "b"], "nulls": "-", "s3.region": "x"})
    assert csv == CsvFormat(header=False, columns=("a", "b"), nulls=("-",))


def test_a_header_that_names_a_column_twice_or_not_at_all_is_refused() -> None:
    assert CsvFormat().names(b'id,"a,b"\r\n', path="a.csv") == ["id", "a,b"]
    with pytest.raises(SourceError, match="names 'id' twice"):
        CsvFormat().names(b"id,id\n", path="a.csv")
    with pytest.raises(SourceError, match="a column without a name"):
        CsvFormat().names(b"id,\n", path="a.csv")


def test_a_record_on_two_lines_is_bad() -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    parse = CsvParser(CsvFormat(), ["id", "text"], schema)
    assert parse(b'1,"a ""b"""\n2,\n').to_pylist() == [
        {"id": 1, "text": 'a "b"'},
        {"id": 2, "text": None},
    ]
    with pytest.raises(pa.ArrowInvalid, match="quote is not closed"):
        parse(b'1,"a\n')
    with pytest.raises(pa.ArrowInvalid):
        parse(b'1,"a\nb"\n')
    with pytest.raises(pa.ArrowInvalid, match="not valid JSON"):
        JsonParser(schema)(b'{"id":\n1}\n')


def test_days_and_times_in_json_are_read_from_text() -> None:
    parse = JsonParser(pa.schema([("day", pa.date32()), ("at", pa.time64("us"))]))
    assert parse(b'{"day": "2026-11-16", "at": "08:30:00"}\n').to_pylist() == [
        {"day": dt.date(2026, 11, 16), "at": dt.time(8, 30)}
    ]
