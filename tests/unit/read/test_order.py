"""Orders: their bounds are checked, and they say how many streams may run."""

from __future__ import annotations

import pytest

import icestream as ice
from icestream.read.order import most_streams


@pytest.mark.parametrize(
    "arguments",
    [
        {"concurrent_streams": 0},
        {"concurrent_streams": True},
        {"concurrent_streams": 1.5},
        {"batch_size": 0},
        {"max_buffered_batches": 0},
        {"max_buffered_batches": None},
    ],
    ids=str,
)
def test_arrival_order_refuses_what_is_no_positive_whole_number(arguments):
    (name,) = arguments
    with pytest.raises(ice.InvalidArgumentError, match=name):
        ice.ArrivalOrder(**arguments)


@pytest.mark.parametrize(
    ("path", "cores", "most"),
    [
        ("file:///warehouse/a.parquet", 2, 2),
        ("/warehouse/a.parquet", 16, 16),
        ("s3://warehouse/a.parquet", 2, 8),
        ("s3://warehouse/a.parquet", 16, 16),
    ],
)
def test_in_task_order_a_stream_runs_on_each_core_and_more_on_an_object_store(
    monkeypatch: pytest.MonkeyPatch, path: str, cores: int, most: int
) -> None:
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    assert most_streams(ice.TaskOrder(), path) == most
    assert most_streams(ice.ArrivalOrder(3), path) == 3
