"""Streams of any length, width and batch size are written inside the limit, in a fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory import measured_write
from tests.support.process import ProcessReport, run_in_fresh_process
from tests.support.s3 import LatencyProxy, s3_server

_MB = 1_000_000
_BESIDE_BYTES = 64 * _MB
_TARGET = "write.target-file-size-bytes"
_BLOOM = "write.parquet.bloom-filter-enabled.column."
_QUICK = ("narrow", "400 columns")
_LONG = ("one row at a time", "narrow, Bloom filters")
_SMALL = {
    "narrow": ("narrow", 3_000_000, "64MB", {}),
    "narrow, small files": ("narrow", 2_000_000, "64MB", {_TARGET: "4000000"}),
    "narrow, Bloom filters": ("narrow", 3_000_000, "64MB", {_BLOOM + "id": "true"}),
    "400 columns": ("wide", 30_000, "64MB", {}),
    "one row at a time": ("one_row_batches", 30_000, "16MB", {}),
    "texts that grow": ("texts", 100_000, "64MB", {}),
    "random numbers": ("random_numbers", 2_000_000, "64MB", {}),
    "random numbers, small files": (
        "random_numbers",
        2_000_000,
        "64MB",
        {_TARGET: "20000000"},
    ),
    "lists of structs": ("nested", 500_000, "64MB", {}),
}
_LARGE = {
    "1 GB": ("narrow", 16_000_000, "256MB", {}),
    "1 GB, 64 MB files": ("narrow", 16_000_000, "256MB", {_TARGET: "64000000"}),
    "10 GB": ("narrow", 160_000_000, "256MB", {}),
    "200K x 400": ("wide", 200_000, "256MB", {}),
    "a million rows alone": ("one_row_batches", 1_000_000, "64MB", {}),
}


def _load(
    directory: Path, shape: str, rows: int, memory: str, properties: dict[str, str]
) -> ProcessReport:
    report = run_in_fresh_process(
        measured_write.load, str(directory), shape, rows, memory, properties, timeout_seconds=900
    )
    assert report.result["allocator"] == "jemalloc"
    return report


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    if name in _QUICK:
        return ()
    return (pytest.mark.soak if name in _LONG else pytest.mark.slow,)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=name, marks=_marks(name)) for name, case in _SMALL.items()],
)
def test_a_load_takes_no_more_than_its_limit(
    tmp_path: Path, case: tuple[str, int, str, dict[str, str]]
) -> None:
    report = _load(tmp_path, *case)
    limit = report.result["memory_limit_bytes"]
    assert report.result["rows_inserted"] >= case[1]
    assert report.result["peak_bytes_held"] <= limit
    assert report.peak_rss_growth_bytes <= limit + _BESIDE_BYTES


@pytest.mark.slow
def test_ten_times_the_rows_take_no_more_memory(tmp_path: Path) -> None:
    (tmp_path / "short").mkdir()
    (tmp_path / "long").mkdir()
    short = _load(tmp_path / "short", "narrow", 600_000, "16MB", {})
    long = _load(tmp_path / "long", "narrow", 6_000_000, "16MB", {})
    assert long.peak_rss_growth_bytes <= short.peak_rss_growth_bytes + 16 * _MB


@pytest.mark.soak
def test_a_slow_object_store_does_not_have_the_file_gather_in_memory(tmp_path: Path) -> None:
    rows, limit = 2_000_000, 32 * _MB
    with s3_server() as endpoint, LatencyProxy(endpoint, latency_seconds=0.25) as proxy:
        report = run_in_fresh_process(
            measured_write.load_to_store, str(tmp_path), proxy.url, rows, str(limit)
        )
    assert report.result["bytes_written"] > 120 * _MB
    # Two batches of the stream's own, 8 MB each, and the part that the store's stream fills.
    assert report.max_arrow_pool_bytes <= limit + 40 * _MB


@pytest.mark.soak
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("case", _LARGE.values(), ids=_LARGE)
def test_a_large_load_takes_no_more_than_its_limit(
    tmp_path: Path, case: tuple[str, int, str, dict[str, str]]
) -> None:
    test_a_load_takes_no_more_than_its_limit(tmp_path, case)
