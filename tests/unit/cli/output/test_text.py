"""Text: colors, aligned columns, and snapshot ids in JSON."""

from __future__ import annotations

import io
import json

import pytest

from icestream.cli.output.text import (
    Painted,
    caret_lines,
    columns,
    has_colors,
    paint,
    print_json,
    without_place,
)
from icestream.errors import InvalidArgumentError


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_terminals_get_colors_unless_they_are_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("failed", "red", _Terminal()) == "\x1b[31mfailed\x1b[0m"
    assert paint("failed", "red", io.StringIO()) == "failed"
    for name, value in (("TERM", "dumb"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
        assert not has_colors(_Terminal())


def test_columns_of_numbers_are_aligned_to_the_right() -> None:
    rows = [(Painted("done", "green"), 1200, "a"), ("failed", None, "b")]
    assert columns(("status", "rows", "x"), rows) == [
        "status   rows  x",
        "done    1,200  a",
        "failed      -  b",
    ]


def test_snapshot_ids_are_strings_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    big = 8830415294124460803
    print_json(
        {"snapshot_id": big, "snapshots": [{"parent_snapshot_id": big}], "snapshot_ids": [big],
         "run": {"quarantine_snapshot_id": None}, "rows": big}
    )  # fmt: skip
    assert json.loads(capsys.readouterr().out) == {
        "snapshot_id": str(big),
        "snapshots": [{"parent_snapshot_id": str(big)}],
        "snapshot_ids": [str(big)],
        "run": {"quarantine_snapshot_id": None},
        "rows": big,
    }


def test_the_caret_stays_below_its_character_in_a_long_filter() -> None:
    text = "a = 1\nand " * 30 + "b"
    error = InvalidArgumentError(f"wrong (character 300 of {text!r})", text=text, position=299)
    line, caret = caret_lines(error)
    assert line[caret.index("^")] == text[299]
    assert len(line) <= 80
    assert without_place(error) == "wrong"
    assert caret_lines(ValueError("x")) == []
    assert caret_lines(InvalidArgumentError("it is empty", text=" ", position=1)) == []
    assert without_place(ValueError("x")) == "x"
