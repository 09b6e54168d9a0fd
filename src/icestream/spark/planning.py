"""A scan becomes tasks: files cut where tasks would go without, and packed by bytes."""

from __future__ import annotations

from icestream.read.scan import Scan
from icestream.read.split import Split
from icestream.spark.packing import pack, wanted_tasks
from icestream.spark.task_plan import SessionDefaults, TaskPlan

_SMALLEST_CUT_BYTES = 8 << 20


def plan_tasks(
    planned: Scan,
    defaults: SessionDefaults,
    *,
    memory_bytes: int | None = None,
    split_bytes: int | None = None,
) -> TaskPlan:
    """Cut and pack a scan for the session's cores.

    Args:
        planned: The scan; its manifests are read now.
        defaults: What the session says.
        memory_bytes: What each task may hold, if it is not that.
        split_bytes: Where files are cut, and the most that a task reads but for a single split; by
            the table's own property, or smaller so that all cores are busy, by default.
    """
    tasks = wanted_tasks(defaults.cores)
    if split_bytes is None:
        packed = pack(_splits(planned, tasks), tasks=tasks)
    else:
        packed = pack(planned.splits(split_bytes), tasks=1, most_bytes=split_bytes)
    return TaskPlan.of(
        packed,
        memory_bytes=memory_bytes or defaults.memory_bytes,
        batch_rows=defaults.batch_rows,
    )


def _splits(planned: Scan, tasks: int) -> list[Split]:
    """The splits by the table's own target size, or smaller ones if tasks would go without."""
    splits = planned.splits()
    fair_bytes = sum(split.bytes for split in splits) // tasks
    target = max(fair_bytes, _SMALLEST_CUT_BYTES)
    if any(split.bytes > target for split in splits):
        return planned.splits(target)
    return splits
