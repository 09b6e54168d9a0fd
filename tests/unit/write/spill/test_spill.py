"""The spill: rows go out in sorted runs and come back partition by partition."""

from __future__ import annotations

import gc
import resource
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.errors import WriteError
from icestream.memory.budget import MemoryBudget
from icestream.write.spill.run_file import with_ids
from icestream.write.spill.sort_keys import SortKeys
from icestream.write.spill.sorted_rows import SortedRows
from icestream.write.spill.spill import Spill
from tests.fault.filling_disk import FillingDisk

_TABLE = Schema(
    NestedField(1, "number", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
)


def _field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"PARQUET:field_id": str(field_id).encode()})


_SCHEMA = pa.schema([_field("number", pa.int64(), 1), _field("text", pa.string(), 2)])


def _rows(ids: list[int], numbers: list[int | None] | None = None) -> pa.RecordBatch:
    """Rows with their ids: the text tells which one a row is."""
    numbers = list(range(len(ids))) if numbers is None else numbers
    texts = [f"{partition_id}-{number}" for partition_id, number in zip(ids, numbers, strict=True)]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64()), pa.array(texts, pa.string())], schema=_SCHEMA
    )
    return with_ids(rows, np.array(ids, np.int32))


def _spill(memory: int | str = "1MB", **options: object) -> Spill:
    return Spill(schema=_SCHEMA, budget=MemoryBudget(memory), **options)  # type: ignore[arg-type]


def _keys(*fields: SortField) -> SortKeys:
    return SortKeys(SortOrder(*fields), _TABLE, _SCHEMA)


def _taken(spill: Spill) -> dict[int, list[tuple[int | None, str]]]:
    """Everything that comes back, after a look at the order of the partitions."""
    taken: dict[int, list[tuple[int | None, str]]] = {}
    for partition_id, batches in spill.merged():
        assert not taken or partition_id > max(taken)
        taken[partition_id] = []
        for batch in batches:
            assert batch.schema.equals(_SCHEMA, check_metadata=True)
            taken[partition_id] += zip(*batch.to_pydict().values(), strict=True)
    return taken


def _expected(*runs: pa.RecordBatch) -> dict[int, list[tuple[int | None, str]]]:
    expected = defaultdict(list)
    for run in runs:
        for number, text, partition_id in zip(*run.to_pydict().values(), strict=True):
            expected[partition_id].append((number, text))
    return dict(expected)


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_partitions_come_back_in_order_of_id_and_rows_as_they_came() -> None:
    runs = [_rows([5, 1, 5, 3, 1]), _rows([3, 3]), _rows([7, 1, 0])]
    spill = _spill()
    for run in runs:
        spill.add(SortedRows([run]))
    assert len(spill) == 3
    assert _taken(spill) == _expected(*runs)
    assert len(spill) == 0


def test_rows_come_back_whole_when_a_partition_spans_many_chunks() -> None:
    random = np.random.default_rng(1)
    spill = _spill()
    runs = [_rows(random.integers(0, 3, 20_000).tolist()) for _ in range(3)]
    for run in runs:
        assert run.nbytes > 10 * spill.chunk_bytes
        spill.add(SortedRows([run.slice(0, 10_000), run.slice(10_000)]))
    assert _taken(spill) == _expected(*runs)


def test_more_runs_than_cursors_fit_are_merged_into_longer_ones() -> None:
    random = np.random.default_rng(2)
    spill = _spill()
    runs = [_rows(random.integers(0, 50, 40).tolist()) for _ in range(spill.fan_in**2 + 5)]
    for run in runs:
        spill.add(SortedRows([run]))
        assert len(spill) <= 2 * spill.fan_in
    assert spill.spilled_bytes > 0
    assert _taken(spill) == _expected(*runs)


def test_cursors_together_stay_inside_their_share_of_the_budget() -> None:
    budget = MemoryBudget("2MB")
    spill = Spill(schema=_SCHEMA, budget=budget)
    random = np.random.default_rng(3)
    for _ in range(spill.fan_in + 3):
        spill.add(SortedRows([_rows(random.integers(0, 4, 10_000).tolist())]))
    for _, batches in spill.merged():
        for _ in batches:
            assert budget.held_bytes > 0
    assert budget.peak_bytes <= 2_000_000 / 4 * 1.2
    assert budget.held_bytes == 0


def test_chunks_are_small_also_where_a_few_rows_are_large() -> None:
    budget = MemoryBudget("4MB")
    spill = Spill(schema=_SCHEMA, budget=budget)
    texts = pa.array(["x"] * 50_000 + ["y" * 40_000] * 50)
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(len(texts))), texts], schema=_SCHEMA)
    ids = np.zeros(len(texts), np.int32)
    spill.add(SortedRows([with_ids(rows, ids)]))
    ((_, batches),) = ((each, list(batches)) for each, batches in spill.merged())
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([rows]))
    assert max(batch.nbytes for batch in batches) <= 2 * spill.chunk_bytes
    assert budget.peak_bytes <= 3 * spill.chunk_bytes


def test_partitions_that_are_not_taken_are_skipped() -> None:
    spill = _spill()
    for _ in range(3):
        spill.add(SortedRows([_rows([1] * 5_000 + [2, 2])]))
    rows = {}
    for partition_id, batches in spill.merged():
        if partition_id == 2:
            rows[partition_id] = sum(batch.num_rows for batch in batches)
    assert rows == {2: 6}


def test_no_file_has_a_name_while_rows_are_spilled(tmp_path: Path) -> None:
    spill = _spill(directory=str(tmp_path))
    spill.add(SortedRows([_rows([1, 0])]))
    assert list(tmp_path.iterdir()) == []
    assert _taken(spill) == _expected(_rows([1, 0]))


def test_files_are_let_go_at_the_end_early_stop_and_close() -> None:
    gc.collect()
    before = _open_files()
    for end in ("taken", "stopped", "closed"):
        spill = _spill()
        for _ in range(3):
            spill.add(SortedRows([_rows([0, 1, 2])]))
        assert _open_files() == before + 3
        merged = spill.merged()
        if end == "taken":
            for _ in merged:
                pass
        elif end == "stopped":
            next(merged)
            merged.close()
        else:
            spill.close()
        assert _open_files() == before


def test_a_directory_that_does_not_exist_is_a_write_error(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(WriteError, match="TMPDIR") as caught:
        _spill(directory=missing).add(SortedRows([_rows([1])]))
    assert caught.value.path == missing


def test_a_full_disk_is_a_write_error_and_nothing_stays_open() -> None:
    gc.collect()
    before = _open_files()
    spill = _spill()
    random = np.random.default_rng(4)
    rows = SortedRows([_rows(random.integers(0, 2**31, 100_000).tolist())])
    # The limit on a file's size stands in for a full disk: the kernel refuses the write alike.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(WriteError, match="File too large") as caught:
            spill.add(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.path == tempfile.gettempdir()
    spill.close()
    assert _open_files() == before


def test_closing_drops_the_files_of_rows_that_are_being_taken() -> None:
    """Whoever takes them may be kept for long by the traceback of an error."""
    gc.collect()
    before = _open_files()
    spill = _spill()
    for _ in range(3):
        spill.add(SortedRows([_rows([0, 1, 2])]))
    merged = spill.merged()
    next(merged)
    assert _open_files() == before + 3
    spill.close()
    assert _open_files() == before
    merged.close()


def test_a_disk_that_stays_full_is_a_write_error_from_the_first_run_on() -> None:
    spill = _spill()
    full = FillingDisk(lambda _: True, 0)
    with full.used():
        with pytest.raises(WriteError, match="No space left"):
            spill.add(SortedRows([_rows([1])]))
        spill.close()
    assert (full.is_full, full.open_files) == (True, 0)


def test_an_empty_run_gives_nothing_back() -> None:
    spill = _spill()
    spill.add(SortedRows([_rows([])]))
    assert _taken(spill) == {}


_number = st.one_of(st.none(), st.integers(-5, 5))
_run = st.lists(st.tuples(st.integers(0, 2), _number), max_size=60)


@settings(max_examples=150, deadline=None)
@given(
    runs=st.lists(_run, min_size=1, max_size=8),
    descending=st.booleans(),
    nulls_first=st.booleans(),
)
def test_sorted_runs_merge_into_sorted_partitions(
    runs: list[list[tuple[int, int | None]]], descending: bool, nulls_first: bool
) -> None:
    field = SortField(
        1,
        IdentityTransform(),
        SortDirection.DESC if descending else SortDirection.ASC,
        NullOrder.NULLS_FIRST if nulls_first else NullOrder.NULLS_LAST,
    )
    keys = _keys(field)
    spill = _spill(keys=keys)
    spill.chunk_bytes = 64  # A few rows, so that many chunks and bounds are met.
    spill.fan_in = 3
    batches = [_rows([i for i, _ in run], [n for _, n in run]) for run in runs]
    for batch in batches:
        spill.add(SortedRows([batch], keys))

    def place(row: tuple[int | None, str]) -> tuple[bool, int]:
        number = row[0]
        if number is None:
            return (not nulls_first, 0)
        return (nulls_first, -number if descending else number)

    taken = _taken(spill)
    expected = _expected(*batches)
    assert {i: sorted(rows, key=place) for i, rows in expected.items()} == taken


def test_partitions_larger_than_a_window_are_sorted_as_a_whole() -> None:
    random = np.random.default_rng(5)
    keys = _keys(SortField(1, IdentityTransform()))
    spill = _spill(keys=keys)
    numbers = random.integers(0, 10**9, (5, 20_000))
    for run in numbers.tolist():
        spill.add(SortedRows([_rows([0] * len(run), run)], keys))
    taken = _taken(spill)[0]
    assert [number for number, _ in taken] == np.sort(numbers, axis=None).tolist()


def test_several_sort_fields_with_transforms_decide_one_after_the_other() -> None:
    fields = (
        SortField(2, TruncateTransform(1), SortDirection.DESC),
        SortField(1, BucketTransform(4)),
        SortField(1, IdentityTransform(), SortDirection.DESC),
    )
    keys = _keys(*fields)
    spill = _spill(keys=keys)
    spill.chunk_bytes = 200
    random = np.random.default_rng(6)
    rows = []
    for _ in range(4):
        numbers = random.integers(0, 100, 200)
        texts = [str(text) for text in random.integers(0, 10**6, 200)]
        rows += list(zip(numbers.tolist(), texts, strict=True))
        batch = pa.RecordBatch.from_arrays([pa.array(numbers), pa.array(texts)], schema=_SCHEMA)
        spill.add(SortedRows([with_ids(batch, np.zeros(200, np.int32))], keys))
    bucket = BucketTransform(4).transform(LongType())
    expected = sorted(rows, key=lambda row: (-ord(row[1][0]), bucket(row[0]), -row[0]))
    taken = _taken(spill)[0]
    assert [(t[0], n) for n, t in taken] == [(t[0], n) for n, t in expected]
    assert sorted(taken) == sorted(rows)


def test_chunks_of_one_long_row_stay_within_their_share_of_the_limit() -> None:
    budget = MemoryBudget("4MB")
    spill = Spill(schema=_SCHEMA, budget=budget)
    ids = list(range(20))
    for run in ids:
        texts = pa.array([f"{run} " + "x" * 200_000 for _ in ids])
        rows = pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), texts], schema=_SCHEMA)
        spill.add(SortedRows([with_ids(rows, np.array(ids, np.int32))], None))
    budget.peak_bytes = 0
    found = {each: sum(batch.num_rows for batch in some) for each, some in spill.merged()}
    assert found == dict.fromkeys(ids, 20)
    assert budget.peak_bytes <= budget.limit_bytes // 4
