"""Lines of text files: each is read once, and bad and long ones are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from icestream.errors import (
    MemoryBudgetError,
)
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources.bad_record import BadRecord
from icestream.write.sources.file_columns import KnownTypes, columns_of
from icestream.write.sources.file_store import FileStore
from icestream.write.sources.source_file import SourceFile, find_files
from icestream.write.sources.text import text_lines
from icestream.write.sources.text.text_lines import (
    Block,
    LineReader,
    blocks,
    first_lines,
    lines_before,
)
from tests.support.source_rows import rows_of


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
    return KnownTypes(given=pa.schema([("id", pa.int64()), ("price", pa.float64())]))


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


def test_a_part_has_the_lines_that_begin_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"first\nsecond\nthird\n")
    whole = SourceFile(str(path), "json", 19)
    for start in range(20):
        parts = (replace(whole, end=start), replace(whole, start=start))
        texts = [b"".join(each.text for each in blocks(part, FileStore())) for part in parts]
        assert b"".join(texts) == path.read_bytes()
        assert all(not text or text.endswith(b"\n") for text in texts)
        assert lines_before(parts[1], FileStore()) == texts[0].count(b"\n")


def test_first_lines_are_whole_and_few(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n3,4\n")
    file = SourceFile(str(path), "csv", 12)
    assert first_lines(file, FileStore(), 1) == b"a,b\n"
    assert first_lines(file, FileStore(), 5) == b"a,b\n1,2\n"
    assert first_lines(file, FileStore()) == path.read_bytes()


def test_a_block_of_bad_lines_gives_an_empty_batch_and_each_line(tmp_path: Path) -> None:
    def parse(text: bytes) -> pa.RecordBatch:
        raise pa.ArrowInvalid("Row #7: it is bad")

    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x\ny\n")
    bad: list[BadRecord] = []
    schema = pa.schema([("id", pa.int64())])
    file = SourceFile(str(path), "json", 4)
    reader = LineReader(file, FileStore(), parse, schema, bad.append)
    (batch,) = reader.read(Block(b"x\ny\n", 0))
    assert (batch.num_rows, batch.schema) == (0, schema)
    assert [(each.line, each.record, each.reason) for each in bad] == [
        (1, "x", "it is bad"),
        (2, "y", "it is bad"),
    ]
