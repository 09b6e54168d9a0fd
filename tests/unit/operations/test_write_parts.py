"""The parts that a verb gives to a write: what they add up to, and how long they hold rows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.operations.write_parts import WorkerPart
from icestream.write.table_writer import Written
from tests.support.loads import ids, make_table


@pytest.mark.parametrize("how", [ice.append, ice.overwrite, ice.write_files])
def test_a_batch_is_let_go_of_before_the_next_one_is_made(
    catalog: SqlCatalog, how: Callable[..., object]
) -> None:
    table = make_table(catalog)
    large = ids(0, 200_000).combine_chunks().to_batches()[0]

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            made = pa.concat_batches([large])
            alive.append(weakref.ref(made))
            yield made
            del made
            assert alive[-1]() is None

    alive: list[weakref.ref[pa.RecordBatch]] = []
    into = ice.write_target(table) if how is ice.write_files else table
    how(into, batches(), memory="16MB")
    assert len(alive) == 4


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
