"""What the tasks of a read do: plain data, and cheap to import where Spark hands it out."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icestream.read.split import Split

_DEFAULT_BYTES = 256_000_000  # what `icestream.memory.DEFAULT_MEMORY` says; a test compares them


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """What reads take from a session, unless they are told otherwise.

    Attributes:
        cores: Tasks that run at once.
        memory_bytes: What each of them may hold.
        batch_rows: The most rows in a batch; None leaves it to the scan.
    """

    cores: int = 1
    memory_bytes: int = _DEFAULT_BYTES
    batch_rows: int | None = None


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What the tasks of a read do.

    Attributes:
        shares: For each task its splits, pickled and compressed: they are much alike.
        memory_bytes: What a task may hold.
        batch_rows: The most rows in a batch; None leaves it to the scan.
        rows: How many rows there are at most.
        stored_bytes: The size of what is read of files.
    """

    shares: tuple[bytes, ...]
    memory_bytes: int
    batch_rows: int | None
    rows: int = 0
    stored_bytes: int = 0

    @classmethod
    def of(
        cls, packed: Sequence[Sequence[Split]], *, memory_bytes: int, batch_rows: int | None
    ) -> TaskPlan:
        """A plan for shares of splits."""
        shares = tuple(zlib.compress(pickle.dumps(list(splits)), 1) for splits in packed)
        every = [split for splits in packed for split in splits]
        rows, stored = sum(split.rows for split in every), sum(split.bytes for split in every)
        return cls(shares, memory_bytes, batch_rows, rows, stored)


def splits_of(share: bytes) -> list[Split]:
    """The splits of one of the shares of a plan."""
    splits: list[Split] = pickle.loads(zlib.decompress(share))
    return splits
