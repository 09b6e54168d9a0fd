"""The order of batches, and how many streams it allows."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.errors import InvalidArgumentError
from icestream.memory.machine import cores
from icestream.read.decode.files import is_remote

_REMOTE_STREAMS = 8


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """Deliver batches grouped by file, in plan order, with rows in file order. The default."""


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """Deliver batches as soon as they are decoded. Rows keep their order within a file.

    The memory limit may reduce these numbers.

    Attributes:
        concurrent_streams: Maximum number of files or row groups decoded at the same time. With 1,
            files are read one after the other.
        batch_size: Maximum number of rows in a batch. None uses the `batch_size` of the scan.
        max_buffered_batches: Maximum number of finished batches that wait for the consumer.
    """

    concurrent_streams: int = 8
    batch_size: int | None = None
    max_buffered_batches: int = 16

    def __post_init__(self) -> None:
        for name in ("concurrent_streams", "batch_size", "max_buffered_batches"):
            value = getattr(self, name)
            if value is None and name == "batch_size":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(f"{name} is {value!r}: give a whole number, 1 or more")


Order = TaskOrder | ArrivalOrder


def most_streams(order: Order, path: str) -> int:
    """Maximum number of streams for files like this one. The budget may allow fewer."""
    if isinstance(order, ArrivalOrder):
        return order.concurrent_streams
    return max(cores(), _REMOTE_STREAMS) if is_remote(path) else cores()
