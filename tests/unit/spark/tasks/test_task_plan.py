"""The plan of a read: plain data that holds no catalog."""

from __future__ import annotations

import pickletools
import zlib

from pyiceberg.table import Table

import icestream
from icestream.spark.tasks.packing import pack
from icestream.spark.tasks.task_plan import TaskPlan


def test_what_travels_to_the_workers_holds_no_catalog(orders: Table) -> None:
    plan = TaskPlan.of(
        pack(icestream.scan(orders).splits(), tasks=3), memory_bytes=64 << 20, batch_rows=None
    )
    assert len(plan.shares) == 3
    for share in plan.shares:
        words = {
            str(argument)
            for _, argument, _ in pickletools.genops(zlib.decompress(share))
            if argument
        }
        modules = {word for word in words if word.startswith("pyiceberg.")}
        assert modules
        assert not {word for word in modules if word.startswith("pyiceberg.catalog")}
        assert not {word for word in words if "sqlalchemy" in word}
