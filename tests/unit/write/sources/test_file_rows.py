"""Rows of files: the same whichever way a file is cut, and bad lines with their numbers."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from icestream.errors import SourceError
from icestream.pipeline.inputs.quarantine import QuarantineRows
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources import source_file
from icestream.write.sources.bad_record import BadRecord
from icestream.write.sources.file_columns import KnownTypes, columns_of
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.source_file import SourceFile, cut_files, find_files
from icestream.write.sources.text import text_lines
from tests.support.source_rows import rows_of

ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]})


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


@pytest.mark.parametrize("part_bytes", [40, 300, 1_000, 4_000])
@pytest.mark.parametrize("group_rows", [1, 7, 40, 100])
def test_a_parquet_file_that_is_cut_anywhere_has_every_row_once(
    tmp_path: Path, group_rows: int, part_bytes: int
) -> None:
    path = tmp_path / "a.parquet"
    rows = ROWS.append_column("text", [["x" * (n % 40) * 9 for n in range(100)]])
    pq.write_table(rows, path, row_group_size=group_rows, use_dictionary=False, compression="none")
    assert path.stat().st_size > 2 * part_bytes
    assert rows_of(path, part_bytes=part_bytes) == rows.to_pylist()


def test_the_row_groups_of_a_parquet_file_are_shared_among_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = pa.table({"id": pa.array(range(40_000), pa.int64())})
    pq.write_table(rows, path, row_group_size=10_000, use_dictionary=False, compression="none")
    found = find_files(SourceSpec.parse(path), {})
    parts = cut_files(found.files, target_bytes=path.stat().st_size // 4, cuts_csv=True)
    reader = FileRows(rows.schema, found.store)
    counts = [sum(batch.num_rows for batch in reader.read([part])) for part in parts]
    assert counts == [10_000] * 4


def _parts(path: Path, schema: pa.Schema, count: int) -> tuple[FileRows, list[SourceFile]]:
    found = find_files(SourceSpec.parse(path), {})
    target = path.stat().st_size // count
    return FileRows(schema, found.store), cut_files(found.files, target_bytes=target, cuts_csv=True)


def test_parts_of_two_versions_of_a_parquet_file_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = pa.table({"id": pa.array(range(1_000), pa.int64())})
    pq.write_table(rows, path, row_group_size=300)
    reader, parts = _parts(path, rows.schema, 2)
    assert len(parts) == 2
    assert sum(batch.num_rows for batch in reader.read(parts[:1])) > 0
    pq.write_table(rows, path)
    with pytest.raises(SourceError, match="changed while it was being loaded: load again"):
        list(reader.read(parts[1:]))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("header", ["id\n", ""], ids=["csv", "jsonl"])
def test_a_text_file_that_is_replaced_by_one_of_the_same_size_is_refused(
    tmp_path: Path, header: str, count: int
) -> None:
    path = tmp_path / ("a.csv" if header else "a.jsonl")
    line = "{}\n" if header else '{{"id": {}}}\n'
    path.write_text(header + "".join(line.format(n) for n in range(100, 200)))
    reader, parts = _parts(path, pa.schema([("id", pa.int64())]), count)
    assert len(parts) == count
    batches = reader.read(parts)
    assert next(batches).num_rows > 0
    path.write_text(header + "".join(line.format(n) for n in range(300, 400)))
    os.utime(path, (1, 1))
    with pytest.raises(SourceError, match="changed while it was being loaded"):
        list(batches)


def test_a_part_in_another_store_is_compared_by_the_size_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1}\n' * 100)
    reader, parts = _parts(path, pa.schema([("id", pa.int64())]), 2)
    monkeypatch.setattr(source_file, "local_source", lambda path: None)
    assert sum(batch.num_rows for batch in reader.read(parts)) == 100
    path.write_text('{"id": 1}\n' * 101)
    for part in parts:
        with pytest.raises(SourceError, match="changed while it was being loaded"):
            list(reader.read([part]))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "no file is at"),
        ("x.parquet", b"not parquet", "can't be read"),
        ("x.csv", b"a,a\n1,2\n", "names 'a' twice"),
        ("x.unknown", b"a\n1\n", "does not show its format"),
        ("x.csv.gz", b"not gzip", "x.csv.gz"),
        ("x.csv", b"", "has no columns"),
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
    assert min(peaks) < table.nbytes / 2


def test_bad_records_are_stored_before_many_bytes_of_them_wait(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes((b"x" * 700_000 + b"\n") * 5)
    found = find_files(SourceSpec.parse(str(path)), {})
    rows = FileRows(pa.schema([("id", pa.int64())]), found.store)
    made = QuarantineRows("load", None, dt.datetime.now(dt.UTC))
    batches = list(made.of_files(rows, found.files))
    assert sum(batch.num_rows for batch in batches) == 5
    assert len(batches) > 1


def test_values_with_line_breaks_are_read_whole_and_bad_records_have_their_line(
    tmp_path: Path,
) -> None:
    rows = [{"id": number, "text": f'a\n"{number}"\nb'} for number in range(3000)]
    text = "".join('{},"a\n""{}""\nb"\n'.format(row["id"], row["id"]) for row in rows)
    (tmp_path / "x.csv").write_text(f"id;text\n{text}".replace(',"', ';"'))
    assert rows_of(tmp_path / "x.csv") == rows
    assert rows_of(tmp_path / "x.csv", part_bytes=10_000) == rows
    (tmp_path / "x.csv").write_text('id,text\n1,"a\nb"\nx,"c\nd"\n3,e,f\n4,"g\n\nh"\n')
    bad: list[BadRecord] = []
    known = KnownTypes(pa.schema([("id", pa.int64())]))
    read = rows_of(tmp_path / "x.csv", known=known, on_bad=bad.append)
    assert read == [{"id": 1, "text": "a\nb"}, {"id": 4, "text": "g\n\nh"}]
    assert [(each.line, each.record) for each in bad] == [(4, 'x,"c\nd"'), (6, "3,e,f")]


def test_files_of_other_encodings_are_read_whole(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        (tmp_path / "x.csv").write_bytes("id,straße\n1,José\n".encode(encoding))
        source = {"path": str(tmp_path / "x.csv"), "options": {"encoding": encoding}}
        assert rows_of(source) == [{"id": 1, "straße": "José"}]
    (tmp_path / "x.csv").write_bytes("id,name\n1,José\n".encode("latin-1"))
    with pytest.raises(SourceError, match=r"line 2.*not valid UTF-8.*option encoding='latin-1'"):
        rows_of(tmp_path / "x.csv")


def test_a_header_alone_and_a_column_without_values_take_their_types_from_other_files(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("id,price\n")
    (tmp_path / "b.csv").write_text("id,price\n1,\n")
    (tmp_path / "c.csv").write_text("id,price\n2,2.5\n")
    assert rows_of(tmp_path) == [{"id": 1, "price": None}, {"id": 2, "price": 2.5}]
    pq.write_table(pa.table({"none": pa.nulls(1)}), tmp_path / "d.parquet")
    (tmp_path / "e.csv").write_text("empty\n\n")
    kinds = columns_of(find_files(SourceSpec.parse(tmp_path), {}), KnownTypes())
    assert {each.name: str(each.type) for each in kinds} == {
        "none": "null", "id": "int64", "price": "double", "empty": "string",
    }  # fmt: skip
    with pytest.raises(SourceError, match="a header and no rows"):
        rows_of(tmp_path / "a.csv", known=KnownTypes(is_new=True))
