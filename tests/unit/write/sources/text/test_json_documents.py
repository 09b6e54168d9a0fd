"""JSON arrays and objects over several lines."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from icestream.errors import MemoryBudgetError, SourceError
from icestream.write.sources.text.json_documents import document_lines, holds_documents
from tests.support.source_rows import rows_of


def _lines(text: str, *, first: int = 8, most_bytes: int = 1 << 20) -> list[dict[str, object]]:
    stream = io.BytesIO(text.encode())
    blocks = document_lines(stream.read(first), stream.read, path="x.json", most_bytes=most_bytes)
    return [json.loads(line) for block in blocks for line in block.splitlines()]


OBJECTS = [{"id": 1, "t": 'a ]}\n"b'}, {"id": 2, "t": {"u": [1, {"v": "é"}]}}, {"id": 3}]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("first", [3, 9, 5000])
def test_an_array_and_objects_over_several_lines_are_objects_on_lines(
    indent: int | None, first: int
) -> None:
    array = json.dumps(OBJECTS, indent=indent, ensure_ascii=False)
    assert _lines(array, first=first) == OBJECTS
    assert _lines(f"  {array}\r\n ", first=first) == OBJECTS
    several = "\n".join(json.dumps(each, indent=2, ensure_ascii=False) for each in OBJECTS)
    assert _lines(several, first=first) == OBJECTS
    assert _lines("[]", first=first) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"id": 1}, 5]', "object 2 .* it is not an object"),
        ('[{"id": 1}, {"id": }]', "object 2 .* Expecting value"),
        ('[{"id": 1}', "the array is not closed"),
        ('[{"id": 1}] {"id": 2}', "text follows the array"),
        ('[{"id": "abc', "Unterminated string"),
    ],
)
def test_an_array_that_is_not_valid_names_the_object(text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        _lines(text)


def test_an_object_that_is_too_large_is_refused() -> None:
    with pytest.raises(MemoryBudgetError, match=r"object 2 of 'x\.json' has more than"):
        _lines(json.dumps([{"id": 1}, {"t": "x" * 3_000_000}]), most_bytes=1 << 20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'[{"a": 1}]', True),
        (b' [\n  {"a": 1}]', True),
        (b'{\n "a": 1\n}\n', True),
        (b'{"a": 1}\n{"a": 2}\n', False),
        (b'{"a": 1,\n{"a": 2}\n', False),
        (b"[1, 2]\n", False),
        (b'{"a": 1}', False),
        (b"", False),
    ],
)
def test_lines_of_objects_are_not_taken_for_documents(text: bytes, expected: bool) -> None:
    assert holds_documents(text) is expected


def test_the_first_part_of_a_large_array_reads_all_of_it(tmp_path: Path) -> None:
    objects = [{"id": number, "name": "x" * 20} for number in range(2000)]
    (tmp_path / "a.json").write_text(json.dumps(objects, indent=1))
    assert rows_of(tmp_path / "a.json", part_bytes=10_000) == objects
