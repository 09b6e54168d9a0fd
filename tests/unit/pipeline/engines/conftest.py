"""Sizes that small files reach."""

from __future__ import annotations

import pytest

from icestream.pipeline.engines import direct_source, partition_sample, spark_route


@pytest.fixture
def small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is sensible from 1,000 bytes."""
    monkeypatch.setattr(direct_source, "LEAST_BYTES_PER_TASK", 1_000)
    monkeypatch.setattr(direct_source, "_OPENING_BYTES", 0)
    monkeypatch.setattr(spark_route, "_SENSIBLE_FILE_BYTES", 1_000)
    monkeypatch.setattr(partition_sample, "_SAMPLED_ROWS", 1_000)
