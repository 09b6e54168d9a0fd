"""The parts that a verb gives to a write: what they add up to, and how long they hold rows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.operations.write_parts import WorkerPart
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


def test_the_parts_of_two_workers_add_up() -> None:
    one = WorkerPart(removed=(0,), updated=2, kept=3, peak_bytes=100, worker=(50, 10))
    other = WorkerPart(removed=(1,), deleted=1, kept=4, peak_bytes=70, retried=True, worker=(60, 9))
    assert one + other == WorkerPart(
        removed=(0, 1),
        updated=2,
        deleted=1,
        kept=7,
        peak_bytes=100,
        retried=True,
        worker=(60, 9),
    )
