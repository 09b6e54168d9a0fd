"""Merges stay inside their limit, in a fresh process, whether the stream fits in memory or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory import measured_merge
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
_BESIDE_BYTES = 64 * _MB
_MODES = ("copy-on-write", "merge-on-read")
# Rows of the table, rows of the stream, columns beside the key, limit, whether it is spilled.
_SMALL = {
    "fits": (1_000_000, 100_000, 2, "64MB", False),
    "is spilled": (1_000_000, 1_000_000, 2, "48MB", True),
    "100 columns": (60_000, 40_000, 100, "64MB", True),
}
_LARGE = {
    "10 million rows each": (10_000_000, 10_000_000, 3, "128MB", True),
    "400 columns": (300_000, 10_000, 400, "512MB", False),
}


@pytest.mark.parametrize(
    "mode", ["copy-on-write", pytest.param("merge-on-read", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name == "fits" else pytest.mark.slow)
        for name, case in _SMALL.items()
    ],
)
def test_a_merge_takes_no_more_than_its_limit(
    tmp_path: Path, case: tuple[int, int, int, str, bool], mode: str
) -> None:
    rows, incoming, columns, memory, spilled = case
    measured_merge.make(str(tmp_path), rows, columns)
    report = run_in_fresh_process(
        measured_merge.merge, str(tmp_path), rows, incoming, columns, mode, memory
    )
    result = report.result
    assert result["allocator"] == "jemalloc"
    assert result["rows_updated"] + result["rows_inserted"] == incoming
    assert result["rows_updated"] > 0 < result["rows_inserted"]
    assert measured_merge.look(str(tmp_path)) == (rows + result["rows_inserted"], 2)
    assert (result["bytes_spilled"] > 0) == spilled
    assert result["peak_bytes_held"] <= result["memory_limit_bytes"]
    assert report.max_arrow_pool_bytes <= result["memory_limit_bytes"]
    assert report.peak_rss_growth_bytes <= result["memory_limit_bytes"] + _BESIDE_BYTES


@pytest.mark.soak
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("case", _LARGE.values(), ids=_LARGE.keys())
def test_a_large_merge_takes_no_more_than_its_limit(
    tmp_path: Path, case: tuple[int, int, int, str, bool], mode: str
) -> None:
    test_a_merge_takes_no_more_than_its_limit(tmp_path, case, mode)
