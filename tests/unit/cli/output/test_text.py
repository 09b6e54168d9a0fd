"""Text: messages of the library in words of the command line."""

from __future__ import annotations

import pytest

from icestream.cli.output.text import in_options


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
