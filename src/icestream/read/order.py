"""In which order batches come, and how many streams that is worth."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.errors import InvalidArgumentError
from icestream.machine import cores
from icestream.read.files import is_remote

_REMOTE_STREAMS = 8


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """Batches grouped by file, in plan order, rows in file order: what a plain scan gives."""


@dataclass(frozen=True, slots=True)
class ArrivalOrder:
    """Batches as they come; rows keep their order within a file.

    The figures are upper bounds: the memory limit may lower them.

    Attributes:
        concurrent_streams: Files or row groups decoded at once; 1 is sequential, grouped by file.
        batch_size: The most rows in a batch; None leaves it to the scan's own batch_size.
        max_buffered_batches: The most finished batches that wait for the consumer.
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
    """How many streams of files like this one are worth having, before the budget has its say."""
    if isinstance(order, ArrivalOrder):
        return order.concurrent_streams
    return max(cores(), _REMOTE_STREAMS) if is_remote(path) else cores()
