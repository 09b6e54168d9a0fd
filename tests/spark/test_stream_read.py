"""A stream tells of every row that is added to a table, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.errors import StreamingQueryException

import icestream as ice
from icestream.errors import StreamError
from icestream.spark.errors import typed
from icestream.spark.streaming import stream_options
from tests.support.spark_orders import ORDERS, order_ids
from tests.support.spark_stream import Copying, append_orders


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """An empty table of orders."""
    return catalog.create_table("db.orders", ORDERS)


@pytest.mark.slow
def test_spark_copies_a_table_that_grows_meanwhile(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table
) -> None:
    copy = catalog.create_table("db.copy", ORDERS)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    for first in range(0, 30, 10):
        append_orders(table, first, first + 10)
    limit = {"max_files_per_micro_batch": "2"} if stream_options.HAS_ADMISSION_CONTROL else {}
    frame = copying.source(**limit)
    query = copying.writer(frame).trigger(processingTime="100 milliseconds").start("db.copy")
    try:
        for first in range(30, 60, 10):
            append_orders(table, first, first + 10)
        query.processAllAvailable()
    finally:
        query.stop()
    assert order_ids(copy) == list(range(60))
    append_orders(table, 60, 70)
    assert copying.run().lastProgress["numInputRows"] == 10
    assert order_ids(copy) == list(range(70))


@pytest.mark.slow
def test_spark_tells_of_an_overwrite_in_the_way_by_its_type(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table
) -> None:
    catalog.create_table("db.copy", ORDERS)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    first = append_orders(table, 0, 10)
    report = ice.overwrite(table, pa.table({"id": [1], "region": ["x"], "price": [0.0]}))
    with pytest.raises(StreamingQueryException) as caught:
        copying.run(copying.source(start_snapshot_id=str(first)))
    error = typed(caught.value)
    assert isinstance(error, StreamError)
    assert str(report.snapshot_id) in str(error)
