"""Progress of a load on Spark that gives no answers."""

from typing import Any

import pytest

import icestream as ice
from icestream.pipeline.engines.spark_watch import SparkWatch


class _Silent:
    """A Spark that fails when it is asked for its progress."""

    master = "spark://elsewhere"

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        return self

    def statusTracker(self) -> Any:  # noqa: N802
        raise RuntimeError("not allowed")


def test_a_load_does_not_fail_because_it_can_not_be_watched() -> None:
    progress = ice.LoadProgress()
    with SparkWatch(_Silent(), progress, None, native_rows=10) as watch:
        pass
    assert (progress.rows, watch.peak_worker_bytes) == (0, None)


def test_an_error_of_the_load_is_raised_as_it_is() -> None:
    with (
        pytest.raises(ValueError, match="of the load"),
        SparkWatch(_Silent(), ice.LoadProgress(), None),
    ):
        raise ValueError("of the load")
