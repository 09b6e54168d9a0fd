"""The suite on Spark in one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.cases import Cases
from tests.conformance.engines import Engine, OnSpark
from tests.support.spark_process import SparkProcess

# The first test waits for JVMs, which take long where others work, too.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """A local session."""
    with SparkProcess(master="local[2]", memory="64MB") as process:
        yield OnSpark(process)


class TestSparkLocal(Cases):
    """See `Cases`."""
