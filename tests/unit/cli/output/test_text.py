"""Text: messages of the library in words of the command line."""

from __future__ import annotations

import pytest

from icestream.cli.output.text import caret_lines, in_options, without_place
from icestream.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("or load with schema_mode='evolve'", "or load with --schema-mode evolve"),
        ('give where="..."', "give --where ..."),
        ("pass catalog= the name", "pass --catalog the name"),
        ("raise memory to 3 MB", "raise --memory to 3 MB"),
        ("run ice.compact(table)", "run icestream compact db.t"),
        ("ice.orphans(table, delete=True)", "icestream orphans db.t --delete"),
        ("a path such as /day=1/where=2", "a path such as /day=1/where=2"),
    ],
)
def test_messages_name_options_instead_of_arguments(message: str, expected: str) -> None:
    assert in_options(message, "db.t") == expected


def test_the_caret_stays_below_its_character_in_a_long_filter() -> None:
    text = "a = 1\nand " * 30 + "b"
    error = InvalidArgumentError(f"wrong (character 300 of {text!r})", text=text, position=299)
    line, caret = caret_lines(error)
    assert line[caret.index("^")] == text[299]
    assert len(line) <= 80
    assert without_place(error) == "wrong"
    assert caret_lines(ValueError("x")) == []
    assert without_place(ValueError("x")) == "x"
