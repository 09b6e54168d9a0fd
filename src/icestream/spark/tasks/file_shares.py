"""Shares of a table's data files: each task gets the descriptions of its own files.

A description is a packed scan task of `KeptTasks`. Files keep the numbers that they have on the
driver, so that a task can return numbers instead of descriptions.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from icestream.operations.kept_tasks import KeptTasks
from icestream.spark.tasks.packing import MOST_BYTES_PER_TASK, pack


@dataclass(frozen=True, slots=True)
class FileShare:
    """Consecutive files of a list.

    Attributes:
        first: The number of the first file.
        files: The files.
    """

    first: int
    files: KeptTasks

    @classmethod
    def of(cls, share: bytes) -> FileShare:
        """In a task: the share that `file_shares` has encoded."""
        first, records = pickle.loads(zlib.decompress(share))
        return cls(first, KeptTasks.of(records))


@dataclass(frozen=True, slots=True)
class _Piece:
    number: int
    bytes: int


def file_shares(
    files: KeptTasks, sizes: Sequence[int], *, tasks: int, most_bytes: int = MOST_BYTES_PER_TASK
) -> list[bytes]:
    """Pack files into shares of about the same size, each encoded for `FileShare.of`.

    Args:
        files: The files.
        sizes: The bytes to read from each file.
        tasks: Number of shares. There are more if a share would exceed `most_bytes`.
        most_bytes: Maximum size of a share, plus 1 MB for opening each file.
    """
    pieces = [_Piece(number, size) for number, size in enumerate(sizes)]
    runs = pack(pieces, tasks=tasks, most_bytes=most_bytes)
    records = files.records
    return [
        zlib.compress(
            pickle.dumps((run[0].number, list(records[run[0].number : run[-1].number + 1]))), 1
        )
        for run in runs
    ]
