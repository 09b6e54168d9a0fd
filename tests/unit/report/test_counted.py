"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from icestream.report.counted import counted


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (12345, "12,345 rows")]
)
def test_a_number_agrees_with_its_noun(count: int, expected: str) -> None:
    assert counted(count, "row") == expected
    assert counted(2, "copy", "copies") == "2 copies"
