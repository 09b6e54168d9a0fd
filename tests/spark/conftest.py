"""One real Spark, on two cores, for all tests here; a real catalog for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from icestream.spark.setup.settings import BATCH_BYTES_SETTING, MEMORY_SETTING, batch_bytes
from tests.support.spark_reads import partitioned_orders
from tests.support.tables import make_catalog


@pytest.fixture
def spark(running_spark: Any) -> Any:
    """The same, whatever other tests have set."""
    running_spark.conf.set(MEMORY_SETTING, "64000000")
    running_spark.conf.set(BATCH_BYTES_SETTING, batch_bytes(64_000_000))
    return running_spark


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A SQLite catalog with a namespace `db`."""
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    """A partitioned table of three appends, with rows deleted by position in two files."""
    return partitioned_orders(catalog)
