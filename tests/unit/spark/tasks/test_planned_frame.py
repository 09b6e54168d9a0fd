"""Shares of a scan, as tasks read them."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table
from pyspark.sql.datasource import InputPartition

import icestream
from icestream.spark.format.table_read import Share, ShareReader
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.tasks.task_plan import plan_tasks


@pytest.mark.parametrize("stand_in", [None, InputPartition(None)])
def test_what_spark_passes_for_no_partitions_reads_nothing(stand_in: InputPartition | None) -> None:
    assert list(ShareReader(1 << 20, None)(stand_in)) == []


def test_batches_are_no_longer_than_spark_allows(orders: Table) -> None:
    [share] = plan_tasks(icestream.scan(orders), SessionDefaults(), split_bytes=1 << 30).shares
    batches = ShareReader(64 << 20, 700)(Share(share))
    assert max(batch.num_rows for batch in batches) <= 700
