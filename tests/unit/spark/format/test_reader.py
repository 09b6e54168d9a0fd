"""The reader of the format, as tasks get it."""

from __future__ import annotations

import pickle

from pyiceberg.table import Table

from icestream.spark.format.read_options import ReadOptions
from icestream.spark.format.reader import TableReader
from icestream.spark.format.table_read import PinnedTable, TableRead
from icestream.spark.setup.settings import SessionDefaults


def test_a_task_is_sent_its_own_share_alone(orders: Table) -> None:
    pinned = PinnedTable(orders.name(), orders.metadata, orders.metadata_location, orders.io)
    reader = TableReader(TableRead(pinned, ReadOptions("db.orders"), SessionDefaults(cores=6)))
    assert len(reader.partitions()) == 12
    assert len(pickle.dumps(reader)) < 500
