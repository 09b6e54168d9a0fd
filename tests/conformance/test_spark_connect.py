"""The suite through Spark Connect: what the client does reaches a server of Spark's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.cases import Cases
from tests.conformance.engines import Engine, OnSpark
from tests.support.spark_process import SparkProcess


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """A session of Spark Connect."""
    with SparkProcess(remote="local[2]", memory="64MB") as process:
        yield OnSpark(process)


class TestSparkConnect(Cases):
    """See `Cases`."""
