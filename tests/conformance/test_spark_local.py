"""The suite on Spark in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.cases import Cases
from tests.conformance.engines import Engine, OnSpark
from tests.conformance.pipelined import loads_the_same_as_in_process
from tests.support.spark_process import SparkProcess

# The first test waits for JVMs, which take long where others work, too. Run by make test-long;
# tests/spark has the same on such a session.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def process() -> Iterator[SparkProcess]:
    """A local session."""
    with SparkProcess(master="local[2]", memory="64MB") as running:
        yield running


@pytest.fixture(scope="module")
def engine(process: SparkProcess) -> Engine:
    """The same, as the suite wants it."""
    return OnSpark(process)


class TestSparkLocal(Cases):
    """See `Cases`."""


def test_a_pipeline_does_the_same_as_in_process(process: SparkProcess, tmp_path: Path) -> None:
    loads_the_same_as_in_process(process, tmp_path)
