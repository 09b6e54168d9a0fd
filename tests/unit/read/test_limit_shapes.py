"""Shapes that take far more than their stored bytes, or whose footers do: in time, by the account.

What the process takes is measured in tests/memory; here are rows, batches and refusals.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from tests.fault.watched_io import watch
from tests.support.leaks import assert_no_leaks
from tests.support.tables import add_parquet_file, commit_files, write_orc_file

pytestmark = pytest.mark.timeout(120)

_MB = 1_000_000
_LONG = "x" * 200_000


def _repeated(rows: int) -> pa.Array:
    codes = pa.array(np.zeros(rows, np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array([_LONG])).cast(pa.string())


def _short_and_long() -> pa.Array:
    """50,000 short texts, then 300 long ones, which are all the same."""
    values = pa.array([f"v{i}" for i in range(1_000)] + [_LONG])
    codes = np.concatenate([np.arange(50_000) % 1_000, np.full(300, 1_000)])
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values).cast(pa.string())


def _nested(kind: str, rows: int) -> pa.Array:
    text = _repeated(rows)
    if kind == "struct":
        return pa.StructArray.from_arrays([text], names=["s"])
    if kind == "list":
        return pa.ListArray.from_arrays(pa.array(range(rows + 1), pa.int32()), text)
    if kind == "map":
        keys = pa.array(range(rows))
        return pa.MapArray.from_arrays(pa.array(range(rows + 1), pa.int32()), keys, text)
    return text.cast(pa.binary()) if kind == "binary" else text


def _table(catalog: Catalog, column: pa.Array, add: Callable[..., Any], **options: Any) -> Table:
    rows = pa.table({"id": pa.array(range(len(column)), pa.int64()), "c": column})
    table = catalog.create_table("db.t", rows.schema)
    add(table, rows, **options)
    return table


def _add_orc_file(table: Table, rows: pa.Table, **options: Any) -> None:
    commit_files(table, [write_orc_file(table, rows, **options)])


def _assert_read_within(table: Table, limit: int, rows: int, **options: Any) -> None:
    budget = ice.MemoryBudget(limit)
    ids: list[int] = []
    for batch in ice.scan(table, memory=budget, **options):
        assert batch.nbytes <= limit // 4
        ids.extend(batch.column("id").to_pylist())
        assert len(str(batch.column("c")[0].as_py())) >= len(_LONG)
    assert ids == list(range(rows))
    assert budget.peak_bytes <= limit
    assert budget.held_bytes == 0


@pytest.mark.parametrize("kind", ["flat", "binary", "struct", "list", "map"])
def test_a_long_text_in_every_row_is_spread_out_in_parts(catalog: Catalog, kind: str) -> None:
    """500 rows of 200 kB are 100 MB, out of a dictionary of one value."""
    table = _table(catalog, _nested(kind, 500), add_parquet_file)
    _assert_read_within(table, 16 * _MB, 500)


@pytest.mark.parametrize("kind", ["list", "map"])
def test_so_it_is_in_lists_of_which_the_first_is_empty(catalog: Catalog, kind: str) -> None:
    """The first row is all that is decoded to see a dictionary, and it has no value."""
    texts = _short_and_long()[::-1]
    edges = pa.array(np.concatenate([[0], np.arange(len(texts) + 1)]), pa.int32())
    if kind == "list":
        column: pa.Array = pa.ListArray.from_arrays(edges, texts)
    else:
        column = pa.MapArray.from_arrays(edges, pa.array(range(len(texts))), texts)
    table = _table(catalog, column, add_parquet_file)
    budget = ice.MemoryBudget("16MB")
    assert sum(batch.num_rows for batch in ice.scan(table, memory=budget)) == len(texts) + 1
    assert budget.peak_bytes <= 16 * _MB


def test_a_dictionary_is_looked_at_without_reading_its_column(catalog: Catalog) -> None:
    """Codes of 16 bits behind a dictionary of texts, one of which may be long."""
    codes = np.random.default_rng(5).integers(0, 60_000, 2_000_000)
    values = pa.array([f"text {i}" for i in range(60_000)])
    column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), values).cast(pa.string())
    column = pa.StructArray.from_arrays([column], names=["s"])
    table = _table(catalog, column, add_parquet_file, row_group_rows=len(codes))
    (split,) = ice.scan(table, columns=["c"]).splits()
    read: Counter[str] = Counter()
    watch(table).on_read = lambda path, offset, length: read.update({path: length})
    batches = iter(ice.scan(table, columns=["c"], memory="64MB"))
    next(batches)
    batches.close()
    assert read[split.path] < split.bytes / 2


@pytest.mark.parametrize("batch_size", [7, 100])
def test_so_it_is_when_a_batch_size_is_given(catalog: Catalog, batch_size: int) -> None:
    table = _table(catalog, _repeated(500), add_parquet_file)
    _assert_read_within(table, 16 * _MB, 500, batch_size=batch_size)


def test_long_texts_after_many_short_ones_are_seen_before_they_are_spread_out(catalog: Catalog):
    texts = _short_and_long()
    table = _table(catalog, texts, add_parquet_file)
    budget = ice.MemoryBudget("16MB")
    assert sum(batch.num_rows for batch in ice.scan(table, memory=budget)) == len(texts)
    assert budget.peak_bytes <= 16 * _MB


def test_orc_starts_with_few_rows(catalog: Catalog) -> None:
    options = {"dictionary_key_size_threshold": 1.0}
    table = _table(catalog, _repeated(500), _add_orc_file, **options)
    _assert_read_within(table, 64 * _MB, 500)


def test_many_columns_are_refused_before_one_is_opened(catalog: Catalog) -> None:
    columns = {f"c{i}": np.arange(5_000) for i in range(300)}
    table = catalog.create_table("db.t", pa.table(columns).schema)
    add_parquet_file(table, pa.table(columns), use_dictionary=False)
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(ice.MemoryBudgetError, match="read fewer columns") as caught:
        list(ice.scan(table, memory="4MB"))
    assert pa.default_memory_pool().max_memory() - before < 2 * _MB
    budget = ice.MemoryBudget(caught.value.needed_bytes)
    assert sum(batch.num_rows for batch in ice.scan(table, memory=budget)) == 5_000
    assert sum(b.num_rows for b in ice.scan(table, memory="4MB", columns=["c1", "c2"])) == 5_000


def test_a_value_that_does_not_fit_is_refused_before_it_is_decoded(catalog: Catalog) -> None:
    texts = pa.array(["short"] * 50 + ["y" * 20_000_000] + ["short"] * 49)
    table = _table(catalog, texts, add_parquet_file, use_dictionary=False, write_batch_size=10)
    with pytest.raises(ice.MemoryBudgetError, match="40 MB") as caught:
        list(ice.scan(table, memory="16MB"))
    budget = ice.MemoryBudget(caught.value.needed_bytes)
    assert sum(batch.num_rows for batch in ice.scan(table, memory=budget)) == 100


def test_a_footer_that_does_not_fit_is_refused_before_it_is_parsed(catalog: Catalog) -> None:
    rows = pa.table({"id": range(3_000), "c": range(3_000)})
    table = catalog.create_table("db.t", rows.schema)
    add_parquet_file(table, rows, row_group_rows=1)
    with pytest.raises(
        ice.MemoryBudgetError, match=r"the parsed footer of .* fewer row groups"
    ) as caught:
        list(ice.scan(table, memory="4MB"))
    budget = ice.MemoryBudget(caught.value.needed_bytes)
    assert sum(batch.num_rows for batch in ice.scan(table, memory=budget)) == 3_000
    assert budget.held_bytes == 0


@pytest.mark.parametrize("order", [ice.TaskOrder(), ice.ArrivalOrder(4)], ids=["task", "arrival"])
def test_streams_that_fit_alone_only_are_opened_one_by_one(catalog: Catalog, order: Any) -> None:
    rows = pa.table({f"c{i}": np.arange(20_000) * 2**30 for i in range(100)})
    table = catalog.create_table("db.t", rows.schema)
    for _ in range(4):
        add_parquet_file(table, rows, use_dictionary=False)
    budget = ice.MemoryBudget("32MB")
    assert sum(b.num_rows for b in ice.scan(table, memory=budget, order=order)) == 80_000
    assert budget.peak_bytes <= 32 * _MB


# Several users


@pytest.fixture
def numbers(catalog: Catalog) -> Table:
    rows = pa.table({"id": np.arange(100_000), "x": np.random.default_rng(1).random(100_000)})
    table = catalog.create_table("db.numbers", rows.schema)
    for _ in range(3):
        add_parquet_file(table, rows)
    return table


def test_ten_scans_share_a_budget_and_all_finish(numbers: Table) -> None:  # S6.2
    budget = ice.MemoryBudget("8MB")
    counts: list[int] = []
    errors: list[BaseException] = []

    def read() -> None:
        try:
            counts.append(sum(batch.num_rows for batch in ice.scan(numbers, memory=budget)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert counts == [300_000] * 10
    assert budget.held_bytes == 0
    assert budget.peak_bytes <= 10 * _MB


def test_a_scan_inside_the_loop_of_another_goes_on(numbers: Table) -> None:
    budget = ice.MemoryBudget("4MB")
    for number, _ in enumerate(ice.scan(numbers, memory=budget)):
        assert sum(batch.num_rows for batch in ice.scan(numbers, memory=budget)) == 300_000
        if number == 2:
            break
    assert budget.held_bytes == 0


def test_scans_that_are_left_early_give_their_share_back(numbers: Table) -> None:
    budget = ice.MemoryBudget("4MB")
    for _ in range(5):
        batches = iter(ice.scan(numbers, memory=budget))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert budget.held_bytes == 0
    assert budget.share().part_bytes == budget.limit_bytes


def test_a_scan_feeds_an_append_on_the_same_budget(catalog: Catalog, numbers: Table) -> None:
    target = catalog.create_table("db.target", numbers.schema().as_arrow())
    budget = ice.MemoryBudget("16MB")
    report = ice.append(target, ice.scan(numbers, memory=budget), memory=budget)
    assert report.rows_inserted == 300_000
    assert budget.held_bytes == 0


def test_buffers_of_other_threads_are_not_taken_for_those_of_the_scan(numbers: Table) -> None:
    """Another thread takes and drops 200 MB of Arrow's memory all the time."""
    ended = threading.Event()

    def allocate() -> None:
        while not ended.is_set():
            held = [pa.allocate_buffer(20 * _MB) for _ in range(10)]
            del held

    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        for _ in range(20):
            assert sum(batch.num_rows for batch in ice.scan(numbers, memory="4MB")) == 300_000
    finally:
        ended.set()
        thread.join()


# Threads


@pytest.mark.parametrize("excess", [0, 1 << 30], ids=["", "the process has taken too much"])
def test_a_first_file_that_does_not_answer_does_not_hold_others_back(
    numbers: Table, monkeypatch: pytest.MonkeyPatch, excess: int
) -> None:
    monkeypatch.setattr("icestream.memory.allocator.watch.excess_bytes", excess)
    io = watch(numbers)
    first = ice.scan(numbers).splits()[0].path
    answered = threading.Event()

    def stall(path: str, offset: int, length: int) -> None:
        if path == first:
            assert answered.wait(30)

    io.on_read = stall
    batches = iter(ice.scan(numbers, order=ice.ArrivalOrder(2), memory="16MB"))
    try:
        rows = 0
        while rows < 200_000:
            rows += next(batches).num_rows
    finally:
        answered.set()
    assert rows + sum(batch.num_rows for batch in batches) == 300_000


def _interrupted_start(monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """`Thread.start` is left by a signal's exception, before or after the thread has begun."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if thread.name.startswith(("icestream-read", "icestream-encode")):
            if not before:
                start(thread)
            raise KeyboardInterrupt
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)


def _scan_all(table: Table, budget: ice.MemoryBudget) -> None:
    list(ice.scan(table, memory=budget))


def _append_some(table: Table, budget: ice.MemoryBudget) -> None:
    ice.append(table, pa.table({"id": np.arange(10), "x": np.arange(10) / 3}), memory=budget)


@pytest.mark.parametrize("before", [True, False], ids=["not started", "started"])
@pytest.mark.parametrize("verb", [_scan_all, _append_some])
def test_an_interrupt_while_a_thread_starts_stays_an_interrupt(
    numbers: Table,
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
    verb: Callable[[Table, ice.MemoryBudget], Any],
) -> None:
    budget = ice.MemoryBudget("16MB")
    with assert_no_leaks():
        with monkeypatch.context() as patch:
            _interrupted_start(patch, before)
            with pytest.raises(KeyboardInterrupt):
                verb(numbers, budget)
        assert budget.held_bytes == 0
        assert sum(batch.num_rows for batch in ice.scan(numbers, memory=budget)) == 300_000
