"""The results of many workers become one result."""

from __future__ import annotations

import time
from typing import Any

from icestream.operations.write_parts import WorkerPart
from icestream.write.table_writer import Written


def _part(number: int) -> WorkerPart:
    file: Any = f"file {number}"  # The sum never looks into a file.
    delete: Any = f"delete {number}"
    written = Written((file,), 1, 10, 2, frozenset({number % 3}), (delete,))
    return WorkerPart(
        written, (number,), (-number,), 1, 2, 3, 4, 5, 6, number, worker=(number, 100 - number)
    )


def test_the_results_of_workers_are_joined_in_their_order() -> None:
    joined = WorkerPart.joined([_part(1), _part(2), _part(3)], retried=True)
    files: Any = ("file 1", "file 2", "file 3")
    deletes: Any = ("delete 1", "delete 2", "delete 3")
    assert joined == WorkerPart(
        Written(files, 3, 30, 6, frozenset({0, 1, 2}), deletes),
        (1, 2, 3),
        (-1, -2, -3),
        3,
        6,
        9,
        12,
        15,
        18,
        peak_bytes=3,
        retried=True,
        worker=(3, 97),
    )
    assert WorkerPart.joined([], retried=False) == WorkerPart()
    assert Written.joined([]) == Written()


def test_ten_times_as_many_results_take_about_ten_times_as_long() -> None:
    few, many = ([_part(n) for n in range(count)] for count in (4_000, 40_000))
    # Adding them up one by one would take about a hundred times as long.
    assert _cpu_seconds(many) < 40 * _cpu_seconds(few)


def _cpu_seconds(parts: list[WorkerPart]) -> float:
    def once() -> float:
        began = time.process_time()
        WorkerPart.joined(parts, retried=False)
        return time.process_time() - began

    return min(once() for _ in range(5))
