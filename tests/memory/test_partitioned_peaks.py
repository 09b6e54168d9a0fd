"""Peak memory and file counts of partitioned and sorted loads, in fresh processes (S3)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icestream.memory.budget import parse_bytes
from tests.memory import measured_partitions
from tests.memory.measured_partitions import Load
from tests.support.process import ProcessReport, run_in_fresh_process

_MB = 1_000_000
# What a write may take beside the bytes it accounts for: metadata, encoders, freed pages.
_BESIDE_BYTES = 64 * _MB
_ENCODER_BYTES = 8 * _MB  # In Arrow's pool: pages that are encoded, and the stream's own batch.


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    shutil.rmtree(tmp_path)  # Up to 10,000 files, which pytest would keep for three runs.


def _measured(directory: str, load: Load) -> ProcessReport:
    """Write a load in a fresh process; look at what holds for every one."""
    report = run_in_fresh_process(measured_partitions.write, directory, load, timeout_seconds=600)
    result: dict[str, Any] = report.result
    limit_bytes = parse_bytes(load.memory)
    assert result["allocator"] == "jemalloc"
    assert result["rows"] == load.rows
    assert result["partitions"] == max(1, load.partitions)
    assert result["files"] <= 1.2 * max(1, load.partitions)
    assert result["bytes_held_after"] == 0
    assert result["peak_bytes_held"] <= limit_bytes
    assert report.max_arrow_pool_bytes <= limit_bytes + _ENCODER_BYTES
    assert report.peak_rss_growth_bytes <= limit_bytes + _BESIDE_BYTES
    return report


@pytest.mark.parametrize("partitions", [pytest.param(10, marks=pytest.mark.soak), 300])
def test_random_partitions_stay_inside_the_limit(directory: str, partitions: int) -> None:
    report = _measured(directory, Load(1_000_000, partitions, memory="16MB"))
    assert report.result["spilled_bytes"] > 0


@pytest.mark.slow
def test_sorted_partitions_stay_inside_the_limit_without_a_spill(directory: str) -> None:
    report = _measured(directory, Load(1_000_000, 300, "sorted", memory="16MB"))
    assert report.result["spilled_bytes"] == 0


@pytest.mark.slow
def test_few_partitions_stay_inside_the_limit_without_a_spill(directory: str) -> None:
    report = _measured(directory, Load(1_000_000, 2, memory="32MB"))
    assert report.result["spilled_bytes"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [pytest.param(0, marks=pytest.mark.soak), 100])
def test_a_sorted_table_stays_inside_the_limit(directory: str, partitions: int) -> None:
    report = _measured(directory, Load(1_000_000, partitions, memory="16MB", sorted_table=True))
    assert report.result["spilled_bytes"] > 0


@pytest.mark.slow
def test_many_columns_stay_inside_the_limit(directory: str) -> None:
    _measured(directory, Load(20_000, 20, memory="32MB", columns=400))


@pytest.mark.slow
def test_narrow_rows_stay_inside_the_limit(directory: str) -> None:
    """Rows of 16 bytes: what it takes to sort them is more than they are."""
    _measured(directory, Load(4_000_000, 100, memory="16MB", columns=2))


@pytest.mark.soak
def test_ten_times_the_rows_take_the_same_memory(tmp_path: Path) -> None:
    one, ten = (
        _measured(str(_new_folder(tmp_path, rows)), Load(rows, 8, memory="16MB"))
        for rows in (400_000, 4_000_000)
    )
    # The small load does not use its limit up, nor does it merge runs of runs.
    assert ten.peak_rss_growth_bytes <= one.peak_rss_growth_bytes + 32 * _MB


def _new_folder(path: Path, number: int) -> Path:
    folder = path / str(number)
    folder.mkdir()
    return folder


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("load", "spills"),
    [
        (Load(8_000_000, 1_000), True),
        (Load(8_000_000, 10_000), True),
        (Load(8_000_000, 1_000, "sorted"), False),
        (Load(8_000_000, 30), True),
        (Load(8_000_000, 2), False),
        (Load(8_000_000, 1_000, sorted_table=True), True),
        (Load(8_000_000, 0, sorted_table=True), True),
        (Load(200_000, 100, memory="256MB", columns=400), True),
    ],
    ids=str,
)
def test_large_loads_stay_inside_the_limit(directory: str, load: Load, spills: bool) -> None:
    report = _measured(directory, load)
    assert (report.result["spilled_bytes"] > 0) == spills
