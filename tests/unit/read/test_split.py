"""Splits: plain data that any worker can read its share from, once and completely."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.read.split import SPLIT_FORMAT, ReadContext
from tests.support.delete_files import commit_deletion_vectors, commit_position_deletes
from tests.support.scans import as_text, ids_of, rows_of
from tests.support.stream_tables import create_four_files
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    add_orc_file,
    add_parquet_file,
    all_types_rows,
    all_types_schema,
    commit_files,
    data_file_paths,
    set_name_mapping,
    upgrade_to_v3,
    write_parquet_file,
)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return create_four_files(catalog)


def _copy(item: Any) -> Any:
    return pickle.loads(pickle.dumps(item))


# Pickling


@pytest.mark.parametrize("recipe", ["evolved", "partitioned", "mapped", "deleted", "vectors"])
def test_splits_of_every_kind_of_table_survive_pickling_together_and_alone(
    catalog: Catalog, recipe: str
) -> None:
    table = _table_of(catalog, recipe)
    scan = ice.scan(table, where="id >= 1")
    expected = as_text(rows_of(scan))
    assert expected
    splits = scan.splits(target_bytes=1)
    together = _copy(splits)
    assert [split.id for split in together] == [split.id for split in splits]
    assert as_text(rows_of(ice.read_splits(together))) == expected
    alone = [_copy(split) for split in splits]
    assert as_text(rows_of(ice.read_splits(alone))) == expected
    one_by_one = [row for split in alone for row in rows_of(ice.read_splits([split]))]
    assert as_text(one_by_one) == expected


def _table_of(catalog: Catalog, recipe: str) -> Table:
    if recipe == "evolved":
        return EVOLUTIONS["nested_changes"](catalog).table
    if recipe == "partitioned":
        return PARTITIONINGS["hive_migrated"](catalog).table
    table = catalog.create_table("db.recipe", all_types_schema())
    if recipe == "mapped":
        set_name_mapping(table)
    rows = all_types_rows(50, seed=1)
    add_parquet_file(table, rows, row_group_rows=10, field_ids=recipe != "mapped")
    positions = {data_file_paths(table)[0]: [3, 4, 17]}
    if recipe == "deleted":
        commit_position_deletes(table, positions)
    if recipe == "vectors":
        commit_deletion_vectors(upgrade_to_v3(table), positions)
    return table


def test_a_pickled_split_carries_no_catalog_and_no_open_file(table: Table) -> None:
    splits = ice.scan(table).splits()
    written = pickle.dumps(splits)
    for name in (b"SqlCatalog", b"NativeFile", b"TableMetadata"):
        assert name not in written
    shared = len(pickle.dumps(splits[0]))
    assert len(written) < shared + 1_500 * len(splits)  # one context for all of them


@pytest.mark.parametrize("state", [(0, "a.parquet"), (3,), ["a.parquet", 1, 2]])
def test_a_split_of_another_format_is_refused(table: Table, state: Any) -> None:
    """The last state has no format number: splits were pickled so before they had one."""
    split = ice.scan(table).splits()[0]
    assert split.__getstate__()[0] == SPLIT_FORMAT == 2
    pickled = pickle.dumps(_Pickled(state))
    with pytest.raises(ice.InvalidArgumentError, match="another version of icestream"):
        pickle.loads(pickled)


class _Pickled:
    """Pickles as a split with the given state."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __reduce__(self) -> tuple[Any, ...]:
        return object.__new__, (ice.Split,), self._state


def test_a_split_is_frozen_and_says_where_and_how_much(table: Table) -> None:
    splits = ice.scan(table).splits()
    paths = {file.file_path: file for file in (t.file for t in table.scan().plan_files())}
    assert {split.path for split in splits} == set(paths)
    for split in splits:
        assert split.rows == 100
        assert split.bytes == paths[split.path].file_size_in_bytes
        assert split.format == split.path.rsplit(".")[-1]
    with pytest.raises(FrozenInstanceError):
        splits[0].path = "elsewhere"  # type: ignore[misc]
    assert {field.name for field in fields(ReadContext)} >= {"io", "schema", "row_filter"}


# Ids


@pytest.mark.slow
def test_ids_are_unique_and_stable_across_plans_and_processes(table: Table) -> None:
    first = [split.id for split in ice.scan(table).splits(target_bytes=1)]
    again = [split.id for split in ice.scan(table).splits(target_bytes=1)]
    assert first == again
    assert len(set(first)) == len(first) == 31
    fresh = table.catalog.load_table("db.split")
    assert [split.id for split in ice.scan(fresh, columns=["id"]).splits(target_bytes=1)] == first
    with _pool() as pool:
        assert pool.submit(_ids_of_splits, _copy(ice.scan(table).splits())).result() == [
            split.id for split in ice.scan(table).splits()
        ]


def _ids_of_splits(splits: list[ice.Split]) -> list[str]:
    return [split.id for split in splits]


def test_ids_change_with_the_snapshot(table: Table) -> None:
    before = {split.id for split in ice.scan(table).splits()}
    add_parquet_file(table, pa.table({"id": [400], "s": ["new"]}))
    after = {split.id for split in ice.scan(table).splits()}
    assert not before & after


def test_row_groups_that_a_replaced_file_no_longer_has_are_an_error(table: Table) -> None:
    splits = ice.scan(table).splits(target_bytes=1)
    path = splits[9].path.removeprefix("file://")
    rows = pq.read_table(path)
    pq.write_table(rows, path)
    with pytest.raises(ice.ReadError) as caught:
        list(ice.read_splits([splits[9]]))
    assert caught.value.path == splits[9].path


# Shares


def test_the_order_of_splits_is_the_order_of_rows(table: Table) -> None:
    splits = ice.scan(table).splits(target_bytes=1)
    assert ids_of(ice.read_splits(splits[::-1])) == [
        i for split in splits[::-1] for i in ids_of(ice.read_splits([split]))
    ]


def test_a_share_may_hold_a_split_twice(table: Table) -> None:
    (first, *_) = ice.scan(table).splits(target_bytes=1)
    assert ids_of(ice.read_splits([first, first])) == [*range(10), *range(10)]


def test_a_limit_holds_for_a_share(table: Table) -> None:
    splits = ice.scan(table).splits(target_bytes=1)
    for order in (ice.TaskOrder(), ice.ArrivalOrder()):
        assert len(ids_of(ice.read_splits(splits, limit=25, order=order))) == 25
    assert list(ice.read_splits(splits, limit=0)) == []


def test_splits_can_be_cut_further_by_the_worker(table: Table) -> None:
    whole = ice.scan(table).splits()
    finer = ice.read_splits(_copy(whole)).splits(target_bytes=1)
    assert len(finer) == 31
    assert ids_of(ice.read_splits(finer)) == list(range(400))


def test_no_splits_are_refused(table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="no splits"):
        ice.read_splits([])


@pytest.mark.parametrize(
    "other",
    [{"columns": ["id"]}, {"where": "id > 5"}],
    ids=["columns", "filter"],
)
def test_splits_of_different_scans_are_refused_together(
    table: Table, other: dict[str, Any]
) -> None:
    mine, theirs = ice.scan(table).splits(), ice.scan(table, **other).splits()
    with pytest.raises(ice.InvalidArgumentError, match="different scans"):
        ice.read_splits([mine[0], theirs[1]])


def test_splits_of_different_snapshots_are_refused_together(table: Table) -> None:
    before = ice.scan(table).splits()
    add_orc_file(table, pa.table({"id": [400], "s": ["new"]}))
    with pytest.raises(ice.InvalidArgumentError, match="different scans"):
        ice.read_splits([before[0], ice.scan(table).splits()[0]])


@pytest.mark.parametrize(
    "wrong",
    [
        "a path",
        5,
        None,
    ],
)
def test_what_is_no_split_is_refused(table: Table, wrong: Any) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="takes Split or FileScanTask"):
        ice.read_splits([ice.scan(table).splits()[0], wrong])


# Other processes


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


def _read(splits: list[ice.Split]) -> list[dict[str, Any]]:
    return rows_of(ice.read_splits(splits, memory="64MB"))


def test_workers_in_other_processes_read_the_same_rows(catalog: Catalog) -> None:
    table = catalog.create_table("db.workers", all_types_schema())
    rows = all_types_rows(60, seed=2)
    files = [write_parquet_file(table, rows.slice(n, 20), row_group_rows=7) for n in (0, 20, 40)]
    commit_files(table, files)
    commit_position_deletes(table, {files[1].file_path: [0, 19]}, one_file=True)
    scan = ice.scan(table, where="id != 5")
    expected = as_text(row for row in rows.to_pylist() if row["id"] not in (5, 20, 39))
    assert as_text(rows_of(scan)) == expected
    splits = scan.splits(target_bytes=1)
    shares = [splits[:4], splits[4:]]
    with _pool() as pool:
        got = [row for share in pool.map(_read, shares) for row in share]
    assert as_text(got) == expected


def _fails(splits: list[ice.Split]) -> None:
    list(ice.read_splits(splits))


def test_an_error_in_another_process_keeps_its_type_and_path(table: Table) -> None:
    splits = ice.scan(table).splits()
    Path(splits[1].path.removeprefix("file://")).unlink()
    with _pool() as pool, pytest.raises(ice.FileMissingError) as caught:
        pool.submit(_fails, splits).result()
    assert caught.value.path == splits[1].path
    assert caught.value.split == splits[1].id
