"""A stream from a table into another, and a merging one, in the process of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog

import icestream.spark as ice_spark
from tests.conformance.engines import opened
from tests.support.loads import snapshots_of
from tests.support.spark_orders import ORDERS, order_ids
from tests.support.spark_process import SparkProcess
from tests.support.spark_stream import Copying, append_orders


def copies_and_merges_exactly_once(
    process: SparkProcess, catalog: SqlCatalog, folder: Path, *, configured: str | None = None
) -> None:
    """Follow a table through two runs, and a third that repeats a batch which was committed.

    Args:
        configured: The name by which the server knows the catalog, where batches are merged there.
    """
    orders = catalog.create_table("db.orders", ORDERS)
    copy = catalog.create_table("db.copy", ORDERS)
    merged = catalog.create_table("db.merged", ORDERS)
    append_orders(orders, 0, 10)
    process.call(_run, dict(catalog.properties), str(folder), configured)
    append_orders(orders, 10, 15)
    process.call(_run, dict(catalog.properties), str(folder), configured)
    process.call(_run, dict(catalog.properties), str(folder), configured, again=True)
    for table in (copy, merged):
        assert order_ids(table) == list(range(15))
        assert len(snapshots_of(table)) == 2


def _run(
    spark: Any,
    properties: dict[str, str],
    folder: str,
    configured: str | None,
    *,
    again: bool = False,
) -> None:
    catalog = opened(properties)
    try:
        copying = Copying(spark, catalog, Path(folder), into="db.copy", stream_id="copy")
        merging = Copying(spark, catalog, Path(folder), into="db.merged", stream_id="merged")
        if again:
            copying.forget_last_batch()
            merging.forget_last_batch()
        copying.run()
        batches = ice_spark.merge_batches(
            "db.merged", catalog=configured or catalog, on="id", stream_id="merged"
        )
        writer = merging.source().writeStream.foreachBatch(batches)
        writer = writer.option("checkpointLocation", str(merging.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        catalog.close()
