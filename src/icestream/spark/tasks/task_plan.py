"""The tasks of a read: a scan is cut into splits, and the splits are packed into shares.

A plan is plain data. This module is cheap to import in the processes that Spark starts.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.tasks.packing import pack, wanted_tasks

if TYPE_CHECKING:
    from icestream.read.scan import Scan
    from icestream.read.split import Split

_SMALLEST_CUT_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The tasks of a read.

    Attributes:
        shares: The splits of each task, pickled and compressed because they are very similar.
        memory_bytes: The memory limit of each task.
        batch_rows: Maximum number of rows in a batch. By default the scan decides.
        rows: Maximum number of rows in all shares.
        stored_bytes: The size in storage of all shares.
        files: Number of data files in all shares.
    """

    shares: tuple[bytes, ...]
    memory_bytes: int
    batch_rows: int | None
    rows: int = 0
    stored_bytes: int = 0
    files: int = 0

    @classmethod
    def of(
        cls, packed: Sequence[Sequence[Split]], *, memory_bytes: int, batch_rows: int | None
    ) -> TaskPlan:
        """A plan with one task for each sequence of splits."""
        shares = tuple(zlib.compress(pickle.dumps(list(splits)), 1) for splits in packed)
        every = [split for splits in packed for split in splits]
        rows, stored = sum(split.rows for split in every), sum(split.bytes for split in every)
        files = len({split.path for split in every})
        return cls(shares, memory_bytes, batch_rows, rows, stored, files)


def splits_of(share: bytes) -> list[Split]:
    """The splits in a share of a plan."""
    splits: list[Split] = pickle.loads(zlib.decompress(share))
    return splits


def plan_tasks(
    scan: Scan,
    defaults: SessionDefaults,
    *,
    memory_bytes: int | None = None,
    split_bytes: int | None = None,
) -> TaskPlan:
    """Cut and pack a scan for the session's cores.

    Args:
        scan: The scan. Its manifests are read now.
        defaults: The cores, memory and batch size of the session.
        memory_bytes: The memory limit of each task, if it differs from the session's.
        split_bytes: The target size of splits and the maximum size of a share, unless a single
            split is larger. By default the table's property, or less to keep all cores busy.
    """
    tasks = wanted_tasks(defaults.cores)
    if split_bytes is None:
        packed = pack(_splits(scan, tasks), tasks=tasks)
    else:
        packed = pack(scan.splits(split_bytes), tasks=1, most_bytes=split_bytes)
    return TaskPlan.of(
        packed,
        memory_bytes=memory_bytes or defaults.memory_bytes,
        batch_rows=defaults.batch_rows,
    )


def _splits(scan: Scan, tasks: int) -> list[Split]:
    """The splits by the table's target size, or smaller ones if some tasks would get none."""
    splits = scan.splits()
    fair_bytes = sum(split.bytes for split in splits) // tasks
    target = max(fair_bytes, _SMALLEST_CUT_BYTES)
    if any(split.bytes > target for split in splits):
        return scan.splits(target)
    return splits
