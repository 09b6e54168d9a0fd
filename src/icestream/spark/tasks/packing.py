"""Packs many splits or files into few tasks of about the same size.

A Spark task needs about 80 ms before it reads anything, so one task per file is slow for small
files. One task per core leaves cores idle at the end. Each task gets consecutive splits, so rows
stay in plan order and the splits of a file stay together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

TASKS_PER_CORE = 2
MOST_BYTES_PER_TASK = 512 << 20
_OPENING_BYTES = 1 << 20


class Sized(Protocol):
    """Something to read whose size is known: a `Split` of a scan or a `SourceFile`."""

    @property
    def bytes(self) -> int:
        """The size in storage."""
        ...


_Piece = TypeVar("_Piece", bound=Sized)


def wanted_tasks(cores: int) -> int:
    """The number of tasks that keeps all cores busy until the end."""
    return TASKS_PER_CORE * max(cores, 1)


def pack(
    pieces: Sequence[_Piece], *, tasks: int, most_bytes: int = MOST_BYTES_PER_TASK
) -> list[list[_Piece]]:
    """Cut a sequence into runs so that the largest run is as small as possible.

    The result depends only on the arguments: the same pieces are always cut in the same way.

    Args:
        pieces: The splits or files to read, in plan order.
        tasks: Number of runs. There are fewer if there are fewer pieces, and more if a run would
            otherwise exceed `most_bytes`.
        most_bytes: Maximum size of a run in storage, plus 1 MB for opening each piece. A single
            piece may be larger.

    Returns:
        The runs. None is empty, and their concatenation is `pieces`.
    """
    if not pieces:
        return []
    # Opening a file takes time whatever its size. Count that time as bytes.
    costs = [piece.bytes + _OPENING_BYTES for piece in pieces]
    tasks = max(min(tasks, len(pieces)), _count(costs, most_bytes))
    ends = _ends(costs, _smallest_capacity(costs, tasks))
    ends = _with_further_cuts(costs, ends, tasks)
    return [list(pieces[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _ends(costs: Sequence[int], capacity: int) -> list[int]:
    """Where runs end if each is filled up to `capacity`. A larger piece is its own run."""
    ends, filled = [], 0
    for position, cost in enumerate(costs):
        if filled and filled + cost > capacity:
            ends.append(position)
            filled = 0
        filled += cost
    return [*ends, len(costs)]


def _count(costs: Sequence[int], capacity: int) -> int:
    return len(_ends(costs, capacity))


def _smallest_capacity(costs: Sequence[int], tasks: int) -> int:
    """The smallest capacity with which `tasks` runs hold all pieces."""
    low, high = 1, sum(costs)
    while low < high:
        middle = (low + high) // 2
        if _count(costs, middle) <= tasks:
            high = middle
        else:
            low = middle + 1
    return low


def _with_further_cuts(costs: Sequence[int], ends: list[int], tasks: int) -> list[int]:
    """Halve the largest run that can be cut until there are `tasks` runs."""
    runs = list(zip([0, *ends], ends, strict=False))
    while len(runs) < tasks:
        start, end = max(
            (run for run in runs if run[1] - run[0] > 1),
            key=lambda run: (sum(costs[run[0] : run[1]]), -run[0]),
        )
        cut = _middle(costs, start, end)
        at = runs.index((start, end))
        runs[at : at + 1] = [(start, cut), (cut, end)]
    return [end for _, end in runs]


def _middle(costs: Sequence[int], start: int, end: int) -> int:
    """The cut that leaves the larger side smallest."""
    total, before = sum(costs[start:end]), 0
    best, best_side = start + 1, total
    for cut in range(start + 1, end):
        before += costs[cut - 1]
        side = max(before, total - before)
        if side < best_side:
            best, best_side = cut, side
    return best
