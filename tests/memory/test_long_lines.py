"""A line of text as long as memory is read or refused inside the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory import measured_load
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
_LIMIT = 64 * _MB


def _write(path: Path, long_bytes: int, *, end: str = "") -> None:
    if path.suffix == ".jsonl":
        before, after = '{"id": 1, "text": "s"}\n{"id": 2, "text": "', '"}\n{"id": 3}\n'
    else:
        before, after = 'id,text\n1,short\n2,"', '"\n3,short\n'
    with open(path, "w") as file:
        file.write(before)
        for _ in range(long_bytes // 1000):
            file.write("a, b" * 250 + end)
        file.write(after)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
@pytest.mark.parametrize("long_bytes", [15 * _MB, 100 * _MB])
def test_a_long_line_is_read_or_refused_inside_the_limit(
    tmp_path: Path, name: str, long_bytes: int
) -> None:
    _write(tmp_path / name, long_bytes)
    measured = run_in_fresh_process(measured_load.load_file, str(tmp_path), name, "64MB", False)
    said, number = measured.result
    if long_bytes < _LIMIT // 4:
        assert (said, number) == ("loaded", 3)
    else:
        line = 3 if name == "a.csv" else 2
        assert said.startswith(f"line {line} of {str(tmp_path / name)!r} has 100 MB")
        assert number == pytest.approx(4 * long_bytes, rel=0.01)
    assert measured.peak_rss_growth_bytes <= _LIMIT + 64 * _MB


@pytest.mark.slow
def test_a_long_record_with_line_breaks_is_refused_inside_the_limit(tmp_path: Path) -> None:
    _write(tmp_path / "a.csv", 100 * _MB, end="\n")
    measured = run_in_fresh_process(measured_load.load_file, str(tmp_path), "a.csv", "64MB", True)
    said, _ = measured.result
    assert said.startswith(f"the record in line 3 of {str(tmp_path / 'a.csv')!r}")
    assert "check whether a quote is not closed" in said
    assert measured.peak_rss_growth_bytes <= _LIMIT + 64 * _MB
