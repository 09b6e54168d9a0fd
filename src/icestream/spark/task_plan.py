"""What the tasks of a read do: plain data, and cheap to import where Spark hands it out."""

from __future__ import annotations

import pickle
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
        shares: For each task its splits, pickled.
        memory_bytes: What a task may hold.
        batch_rows: The most rows in a batch; None leaves it to the scan.
    """

    shares: tuple[bytes, ...]
    memory_bytes: int
    batch_rows: int | None

    @classmethod
    def of(
        cls, packed: Sequence[Sequence[Split]], *, memory_bytes: int, batch_rows: int | None
    ) -> TaskPlan:
        """A plan for shares of splits."""
        shares = tuple(pickle.dumps(list(splits)) for splits in packed)
        return cls(shares, memory_bytes, batch_rows)
