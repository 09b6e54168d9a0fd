"""A merge in parts, as workers do it: keys of both sides, and changes applied file by file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.keys.key_hash import KeyHash
from icestream.operations.merge.keys.key_range import KeyRange
from icestream.operations.merge.merge_options import MergeOptions
from icestream.operations.merge.merge_plan import MergePlan
from icestream.operations.merge.merge_work import (
    FILE_FIELD,
    FILE_POSITION,
    KEY_FIELDS,
    PLACE_FIELDS,
    MergeWork,
)
from icestream.write.target import WriteTarget
from tests.support.loads import listing
from tests.support.merges import Row, filled, stream

_FILES = [[(1, 1, "a"), (2, 1, "b"), (3, 1, "c")], [(11, 2, "k"), (12, 2, "l")]]


def _work(table: Table, mode: Any = "copy-on-write", on: str = "id") -> MergeWork:
    target = WriteTarget.of(table.refresh())
    options = MergeOptions(on=on, write_mode=mode)
    plan = MergePlan.of(options, stream([]).schema, target, target.schema)
    return MergeWork(plan, target, "main", KeyHash(), 16_000_000).for_workers()


def _files(work: MergeWork) -> KeptTasks:
    live = LiveFiles(work.target, "main", MemoryBudget("16MB"))
    tasks = sorted(live.tasks(live.ask()), key=lambda task: -task.file.record_count)
    return KeptTasks(live.budget).extend(tasks)


def _batch(rows: Sequence[Row], places: Sequence[tuple[Any, Any, Any]]) -> pa.RecordBatch:
    """Rows of the stream with file, position and packed task; None for what they lack."""
    columns = [*stream(rows).to_batches()[0].columns]
    fields = [*PLACE_FIELDS, FILE_FIELD]
    columns += [pa.array(v, f.type) for v, f in zip(zip(*places, strict=True), fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*stream([]).schema, *fields]))


@pytest.mark.parametrize("on", ["id", "text"])
def test_both_sides_have_the_same_columns_for_the_same_keys(catalog: SqlCatalog, on: str) -> None:
    table = filled(catalog, *_FILES)
    work, key_range = _work(table, on=on), KeyRange(_work(table, on=on).plan.key)
    rows = stream([(2, 9, "b"), (12, 9, "l"), (99, 9, "new")])
    (given,) = work.keyed(rows.to_batches(), key_range)
    assert given.select(rows.column_names).equals(rows.to_batches()[0])
    keys = [field.name for field in KEY_FIELDS]
    stored = pa.Table.from_batches(work.stored_keys(_files(work), 5, None)).to_pylist()
    places = {tuple(row[key] for key in keys): (row["__icestream_file"], row["__icestream_pos"])
              for row in stored}  # fmt: skip
    found = [places.get(tuple(row[key] for key in keys)) for row in given.to_pylist()]
    assert found == [(5, 1), (6, 1), None]


def test_a_worker_changes_its_file_and_inserts_what_matches_nothing(
    catalog: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, *_FILES)
    work = _work(table, mode)
    record = _files(work).records[0]
    rows = [(0, 0, ""), (2, 9, "B"), (3, 1, "c"), (99, 9, "new")]
    batch = _batch(
        rows,
        [(7, FILE_POSITION, record), (7, 1, None), (7, 2, None), (None, None, None)],
    )
    part = work.apply([batch], task=1, attempt=0)
    on_read = mode == "merge-on-read"
    assert (part.updated, part.unchanged, part.matched, part.unmatched) == (1, 1, 2, 1)
    assert (part.removed, part.deleted_from) == (((), (7,)) if on_read else ((7,), ()))
    assert part.kept == (1 if on_read else 3)
    assert part.written.rows == part.kept + 1
    assert len(part.written.deletes) == on_read


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([(0, FILE_POSITION, b""), (0, 2, None), (0, 1, None)], id="positions"),
        pytest.param([(0, 1, None), (0, 2, None), (0, 2, None)], id="no description"),
    ],
)
def test_rows_out_of_order_are_refused_and_leave_no_file(
    catalog: SqlCatalog, places: list[tuple[Any, Any, Any]]
) -> None:
    table = filled(catalog, *_FILES)
    work, before = _work(table), listing(table)
    record = _files(work).records[0]
    places = [(file, at, record if task is not None else None) for file, at, task in places]
    with pytest.raises(ice.InvalidArgumentError, match="out of order"):
        work.apply([_batch([(1, 9, "x")] * 3, places)], task=0, attempt=0)
    assert listing(table) == before
