"""Many splits become few tasks of about the same size.

A Spark task costs some 80 ms before it reads anything, so that a task per file is slow on small
files; one task per core leaves cores idle at the end. Shares are runs of consecutive splits: rows
stay in plan order, and a file's neighbours stay together.
"""

from __future__ import annotations

from collections.abc import Sequence

from icestream.read.split import Split

TASKS_PER_CORE = 2
MOST_BYTES_PER_TASK = 512 << 20
_OPENING_BYTES = 1 << 20


def wanted_tasks(cores: int) -> int:
    """How many tasks keep all cores busy until the end."""
    return TASKS_PER_CORE * max(cores, 1)


def pack(
    splits: Sequence[Split],
    *,
    tasks: int,
    most_bytes: int = MOST_BYTES_PER_TASK,
) -> list[list[Split]]:
    """Cut the splits into runs of consecutive ones, the largest run as small as possible.

    The same splits are always cut the same way.

    Args:
        splits: What is to be read, in plan order.
        tasks: How many runs there should be. There are fewer only if there are fewer splits, and
            more only where a run would otherwise exceed `most_bytes`.
        most_bytes: The most bytes in storage of a run, 1 MB added for opening each split. A single
            split may be larger.

    Returns:
        The runs, none of them empty; joined they are `splits`.
    """
    if not splits:
        return []
    # Opening a file costs time whatever its size: count it as bytes.
    costs = [split.bytes + _OPENING_BYTES for split in splits]
    tasks = max(min(tasks, len(splits)), _count(costs, most_bytes))
    ends = _ends(costs, _smallest_capacity(costs, tasks))
    ends = _with_further_cuts(costs, ends, tasks)
    return [list(splits[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def _ends(costs: Sequence[int], capacity: int) -> list[int]:
    """Where runs end if each takes as much as fits; what fits nowhere is a run of its own."""
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
    """The least that so many runs have to hold, single splits that are larger left aside."""
    low, high = 1, sum(costs)
    while low < high:
        middle = (low + high) // 2
        if _count(costs, middle) <= tasks:
            high = middle
        else:
            low = middle + 1
    return low


def _with_further_cuts(costs: Sequence[int], ends: list[int], tasks: int) -> list[int]:
    """Halve the largest run that can be cut until there are as many as wanted."""
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
