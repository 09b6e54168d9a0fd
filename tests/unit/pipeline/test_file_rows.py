"""Rows of files: the same whichever way a file is cut, and bad lines with their numbers."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from icestream.errors import MemoryBudgetError, SchemaMismatchError, SourceError
from icestream.pipeline import text_lines
from icestream.pipeline.bad_record import BadRecord, refuse
from icestream.pipeline.file_columns import KnownTypes, columns_of
from icestream.pipeline.file_rows import FileRows
from icestream.pipeline.quarantine import QuarantineRows
from icestream.pipeline.source_file import SourceFile, cut_files, find_files
from icestream.pipeline.source_spec import SourceSpec
from icestream.pipeline.text_format import CsvFormat

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]})


def rows_of(
    source: Any,
    *,
    known: KnownTypes | None = None,
    on_bad: Callable[[BadRecord], None] = refuse,
    part_bytes: int | None = None,
) -> list[dict[str, Any]]:
    found = find_files(SourceSpec.parse(source), {})
    schema = columns_of(found, known or KnownTypes())
    files = list(found.files)
    if part_bytes is not None:
        files = cut_files(files, target_bytes=part_bytes, cuts_csv=True)
        assert len(files) > len(found.files)
    reader = FileRows(schema, found.store, CsvFormat.of(found.options))
    return [row for batch in reader.read(files, on_bad) for row in batch.to_pylist()]


def test_formats_and_compressions_give_the_same_rows(tmp_path: Path) -> None:
    expected = ROWS.to_pylist()
    csv = "id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in expected)
    json = "".join(f'{{"id": {row["id"]}, "name": "{row["name"]}"}}\n' for row in expected)
    pq.write_table(ROWS, tmp_path / "a.parquet")
    pa.orc.write_table(ROWS, tmp_path / "a.orc")
    with pa.ipc.new_file(tmp_path / "a.arrow", ROWS.schema) as writer:
        writer.write_table(ROWS)
    with pa.ipc.new_stream(tmp_path / "a.arrows", ROWS.schema) as writer:
        writer.write_table(ROWS)
    (tmp_path / "a.csv").write_text(csv)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(csv.encode()))
    (tmp_path / "a.jsonl").write_text(json)
    (tmp_path / "a.json.bz2").write_bytes(bz2.compress(json.encode()))
    (tmp_path / "a.ndjson.zst").write_bytes(pa.Codec("zstd").compress(json.encode(), asbytes=True))
    (tmp_path / "_hidden.csv").write_text("other\n1\n")
    for file in sorted(tmp_path.glob("a.*")):
        assert rows_of(str(file)) == expected, file.name
    assert len(rows_of(tmp_path)) == 9 * len(expected)
    assert len(rows_of(str(tmp_path / "**" / "a.csv*"))) == 2 * len(expected)


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 300])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_file_that_is_cut_anywhere_has_every_row_once(
    tmp_path: Path, suffix: str, part_bytes: int
) -> None:
    path = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        path.write_text("id,name\n" + "".join(f"{i},{'x' * (i % 40)}y\n" for i in range(60)))
    else:
        path.write_text("".join(f'{{"id":{i},"name":"{"x" * (i % 40)}y"}}\n' for i in range(60)))
    whole = rows_of(path)
    assert [row["id"] for row in whole] == list(range(60))
    assert rows_of(path, part_bytes=part_bytes) == whole


def test_blocks_smaller_than_a_line_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        b"\xef\xbb\xbfid,name\r\n" + b"".join(b"%d,abcdefghij\r\n" % i for i in range(50))
    )
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 5)
    assert [row["id"] for row in rows_of(path)] == list(range(50))


@pytest.mark.parametrize("part_bytes", [None, 16])
def test_bad_lines_are_told_with_number_text_and_reason(
    tmp_path: Path, part_bytes: int | None
) -> None:
    path = tmp_path / "a.csv"
    lines = [f"{i},{i}.5" for i in range(2, 40)]
    lines[3], lines[20], lines[30] = "x,1.5", "7", '9,"open'
    path.write_text("id,price\n" + "\n".join(lines) + "\n")
    bad: list[BadRecord] = []
    rows = rows_of(path, on_bad=bad.append, part_bytes=part_bytes, known=_priced())
    assert len(rows) == 35
    assert [(each.line, each.record) for each in bad] == [
        (5, "x,1.5"),
        (22, "7"),
        (32, '9,"open'),
    ]
    assert "invalid value 'x'" in bad[0].reason
    assert "Expected 2 columns, got 1" in bad[1].reason
    assert "multiline" in bad[2].reason
    assert {each.source for each in bad} == {str(path)}


def _priced() -> KnownTypes:
    return KnownTypes(told=pa.schema([("id", pa.int64()), ("price", pa.float64())]))


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
    known = KnownTypes(told=pa.schema([("a", pa.int64()), ("b", pa.string())]))
    bad: list[BadRecord] = []
    reader = FileRows(known.told, find_files(SourceSpec.parse(path), {}).store)
    file = SourceFile(str(path), "json", path.stat().st_size)
    rows = [row for batch in reader.read([file], bad.append) for row in batch.to_pylist()]
    assert rows == [{"a": 1, "b": "} x {"}, {"a": 3, "b": "null"}]
    assert [(each.line, each.record) for each in bad] == [(2, line)]


def test_a_bad_line_is_an_error_that_says_which(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,price\n1,2.5\n2,cheap\n")
    with pytest.raises(SourceError, match=r"a\.csv', line 3, .*'cheap'.*quarantine"):
        rows_of(path, known=_priced())


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
        told=pa.schema([("id", pa.int64()), ("text", pa.string()), ("n", pa.int64())])
    )
    assert rows_of(source, known=known) == [
        {"id": 1, "text": "a;b", "n": None},
        {"id": 2, "text": "line\nbreak", "n": 3},
    ]


def test_files_whose_columns_differ_are_one_stream(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([2], pa.int64()), "b": ["x"]}), tmp_path / "2.parquet")
    assert rows_of(tmp_path) == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    pq.write_table(pa.table({"a": ["text"]}), tmp_path / "3.parquet")
    with pytest.raises(SchemaMismatchError, match="do not go together"):
        rows_of(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "no file is at"),
        ("x.parquet", b"not parquet", "can't be read"),
        ("x.csv", b"a,a\n1,2\n", "names 'a' twice"),
        ("x.unknown", b"a\n1\n", "does not say what it is"),
        ("x.csv.gz", b"not gzip", "x.csv.gz"),
        ("x.csv", b"", "have no column"),
    ],
)
def test_a_file_that_can_not_be_read_is_named(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=message):
        rows_of(tmp_path / name)


def test_a_column_that_comes_late_is_an_error_not_a_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = ['{"a": 1}'] * 200_000 + ['{"a": 1, "late": 2}']
    path.write_text("\n".join(rows))
    with pytest.raises(SourceError, match="line 200001"):
        rows_of(path)


def test_a_file_of_bad_lines_alone_is_not_held_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 1000)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n' + "no JSON at all\n" * 5000)
    found = find_files(SourceSpec.parse(str(tmp_path / "a.jsonl")), {})
    rows = FileRows(pa.schema([("id", pa.int64())]), found.store)
    made = QuarantineRows("load", None, dt.datetime.now(dt.UTC))
    sizes = [batch.num_rows for batch in made.of_files(rows, found.files)]
    assert sum(sizes) == 5000
    assert max(sizes) < 1100


def test_a_stripe_of_an_orc_file_is_not_decoded_as_a_whole(tmp_path: Path) -> None:
    count = 3_000_000
    table = pa.table({"id": np.arange(count)})
    pa.orc.write_table(table, tmp_path / "a.orc", stripe_size=1 << 30)
    assert pa.orc.ORCFile(tmp_path / "a.orc").nstripes == 1
    found = find_files(SourceSpec.parse(str(tmp_path / "a.orc")), {})
    peaks = []
    for _ in range(3):  # on a busy machine Arrow decodes ahead, at times
        before, held, rows = pa.total_allocated_bytes(), 0, 0
        for batch in FileRows(table.schema, found.store).read(found.files):
            held = max(held, pa.total_allocated_bytes() - before)
            rows += batch.num_rows
        assert rows == count
        peaks.append(held)
    assert min(peaks) < table.nbytes / 4


@pytest.mark.parametrize("start", [0, 12])
def test_a_line_that_is_too_long_is_refused_with_its_number_and_size(
    tmp_path: Path, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 7)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id": 1}\n{"id": 2}\n{"id": ' + b"3" * 993 + b"}\n{}\n")
    found = find_files(SourceSpec.parse(str(path)), {})
    (file,) = found.files
    part = replace(file, start=start, end=1030)
    with pytest.raises(MemoryBudgetError, match=r"line 3 of '.*a\.jsonl' has 1 kB") as caught:
        list(text_lines.blocks(part, found.store, 100))
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (4004, 400)
    whole = b"".join(block.text for block in text_lines.blocks(part, found.store, 2000))
    assert whole == path.read_bytes()[20 if start else 0 :]
    with pytest.raises(MemoryBudgetError, match="raise memory to"):
        columns_of(found, KnownTypes(), 100)


def test_bad_records_are_stored_before_many_bytes_of_them_wait(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"x" * 700_000 + b"\n") * 5)
    found = find_files(SourceSpec.parse(str(path)), {})
    rows = FileRows(pa.schema([("id", pa.int64())]), found.store)
    made = QuarantineRows("load", None, dt.datetime.now(dt.UTC))
    batches = list(made.of_files(rows, found.files))
    assert sum(batch.num_rows for batch in batches) == 5
    assert len(batches) > 1
