"""Memory of a process over time."""

from __future__ import annotations

from pathlib import Path

import pytest

import icestream as ice
from icestream.cli.demo.memory_trace import MemoryTrace, Reader, Sample, trace_read


def _trace(reader: Reader, *points: tuple[float, int]) -> MemoryTrace:
    samples = tuple(Sample(seconds, grown, grown // 2, 0) for seconds, grown in points)
    most = max(grown for _, grown in points)
    return MemoryTrace(reader, 10, 45, points[-1][0], 0.0, most, most, samples)


def test_each_step_of_time_has_the_most_of_it_and_gaps_keep_the_last() -> None:
    trace = _trace("icestream", (0.0, 1), (0.4, 9), (0.6, 3), (3.2, 7))
    assert trace.over_time(4, 1.0) == [9, 9, 9, 7]
    assert trace.over_time(4, 1.0, "held_bytes") == [4, 4, 4, 3]


def test_a_read_that_ends_early_leaves_the_rest_of_the_picture() -> None:
    trace = _trace("icestream", (0.0, 0), (1.0, 50_000_000), (2.0, 50_000_000))
    assert len(trace.over_time(8, 0.5)) == 5


def test_the_document_has_all_but_the_samples() -> None:
    document = _trace("icestream", (0.0, 1)).to_dict()
    assert document["reader"] == "icestream"
    assert "samples" not in document


def test_a_process_that_fails_is_a_read_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "v1.metadata.json")
    with pytest.raises(ice.ReadError, match="ended with 1: see its message") as caught:
        trace_read("pyiceberg", missing, memory="64MB")
    assert caught.value.path == missing
