"""Plans made from manifests, one by one: what is read when, what is found, and what it holds."""

from __future__ import annotations

import errno
import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

import icestream as ice
from icestream.read.split import ReadContext, Split
from tests.support.delete_files import (
    commit_deletion_vectors,
    commit_equality_deletes,
    commit_position_deletes,
)
from tests.support.many_files import add_many_files, wide_rows
from tests.support.scans import ids_of
from tests.support.tables import add_parquet_file, data_file_paths, make_catalog, upgrade_to_v3

_MANIFESTS = 6
_FILE_ROWS = 10


class _WatchedMetadata(PyArrowFileIO):
    """Notes which metadata files are opened, and calls `on_open` before."""

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        self.opened: list[str] = []
        self.on_open: Callable[[str], None] = lambda path: None

    def new_input(self, location: str) -> Any:
        if "/metadata/" in location:
            self.opened.append(location)
            self.on_open(location)
        return super().new_input(location)


def _watch(table: Table) -> _WatchedMetadata:
    table.io = _WatchedMetadata(dict(table.io.properties))
    return table.io


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """One file of ten rows in each of six manifests."""
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    for number in range(_MANIFESTS):
        first = number * _FILE_ROWS
        add_parquet_file(table, pa.table({"id": list(range(first, first + _FILE_ROWS))}))
    return table


def _manifests(table: Table, content: ManifestContent = ManifestContent.DATA) -> list[str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = snapshot.manifests(PyArrowFileIO())
    return [manifest.manifest_path for manifest in found if manifest.content == content]


# What is opened, and when


@pytest.mark.parametrize("order", [ice.TaskOrder(), ice.ArrivalOrder()])
def test_the_first_batch_comes_after_one_data_manifest(table: Table, order: Any) -> None:
    commit_position_deletes(table, {data_file_paths(table)[-1]: [0]})
    io = _watch(table)
    first, *others = _manifests(table)
    has_batch = threading.Event()
    waited = []
    io.on_open = lambda path: waited.append(has_batch.wait(60)) if path in others else None
    batches = iter(ice.scan(table, order=order))
    assert next(batches).num_rows == _FILE_ROWS - 1
    assert first in io.opened
    assert waited == [], "the batch came while the next manifest was held back"
    has_batch.set()
    assert sum(batch.num_rows for batch in batches) == (_MANIFESTS - 1) * _FILE_ROWS


def test_delete_manifests_are_read_before_the_first_data_manifest(table: Table) -> None:
    commit_position_deletes(table, {data_file_paths(table)[-1]: [0]})
    io = _watch(table)
    splits = ice.scan(table).iter_splits()
    next(splits)
    deletes, data = _manifests(table, ManifestContent.DELETES), _manifests(table)
    assert io.opened[1:] == [*deletes, data[0]]
    splits.close()


def test_a_plan_that_is_given_up_opens_no_further_manifest(table: Table) -> None:
    io = _watch(table)
    scan = ice.scan(table)
    splits = scan.iter_splits()
    next(splits)
    opened = len(io.opened)
    splits.close()
    assert len(io.opened) == opened == 2, "the manifest list, and one manifest"


def test_a_limit_ends_planning_once_the_rows_are_found(table: Table) -> None:
    io = _watch(table)
    assert len(ids_of(ice.scan(table, limit=5))) == 5
    assert len(io.opened) <= 3
    io.opened.clear()
    assert len(ice.scan(table, limit=_FILE_ROWS + 1).splits()) == 2
    assert len(io.opened) == 3


def test_manifests_that_the_list_rules_out_are_not_opened(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = catalog.create_table("db.p", Schema(NestedField(1, "id", LongType())), None, spec)
    for number in range(_MANIFESTS):
        add_parquet_file(table, pa.table({"id": [number]}))
    io = _watch(table)
    assert ids_of(ice.scan(table, where="id = 3")) == [3]
    assert len(io.opened) == 2


def test_splits_that_were_asked_for_are_not_planned_again(table: Table) -> None:
    scan = ice.scan(table)
    scan.splits()
    io = _watch(table)
    assert len(ids_of(scan)) == _MANIFESTS * _FILE_ROWS
    assert io.opened == []


# What is found


def test_splits_come_in_the_order_of_pyicebergs_plan(table: Table) -> None:
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[1]: [0], paths[4]: [3]})
    planned = list(table.scan().plan_files())
    splits = ice.scan(table).splits()
    assert [split.path for split in splits] == [task.file.file_path for task in planned]
    assert [{delete.path for delete in split.deletes} for split in splits] == [
        {file.file_path for file in task.delete_files} for task in planned
    ]
    again = list(ice.scan(table).iter_splits())
    assert [split.id for split in again] == [split.id for split in splits]


def test_deletion_vectors_go_to_their_own_file_alone(table: Table) -> None:
    upgrade_to_v3(table)
    paths = data_file_paths(table)
    commit_deletion_vectors(table, {paths[0]: [1], paths[2]: [2, 3]})
    with_deletes = {split.path for split in ice.scan(table).splits() if split.deletes}
    assert with_deletes == {paths[0], paths[2]}
    assert len(ids_of(ice.scan(table))) == _MANIFESTS * _FILE_ROWS - 3


def test_equality_deletes_are_refused_only_where_they_apply(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "n", LongType()))
    table = catalog.create_table("db.e", schema, None, spec, properties={"format-version": "2"})
    for number in range(3):
        add_parquet_file(table, pa.table({"id": [number], "n": [number]}))
    last = ice.scan(table, where="id = 2").splits()[0].path
    path = commit_equality_deletes(table, ["n"], [{"n": 2}], like_data_file=last)
    assert sorted(ids_of(ice.scan(table, where="id < 2"))) == [0, 1]
    with pytest.raises(ice.UnsupportedFeatureError, match="equality deletes") as caught:
        ids_of(ice.scan(table))
    assert path in str(caught.value)
    add_parquet_file(table, pa.table({"id": [7], "n": [2]}))
    assert ids_of(ice.scan(table, where="id = 7")) == [7]


def test_files_added_after_a_global_equality_delete_are_read(table: Table) -> None:
    commit_equality_deletes(table, ["id"], [{"id": 5}])
    with pytest.raises(ice.UnsupportedFeatureError):
        ids_of(ice.scan(table))
    add_parquet_file(table, pa.table({"id": [1000]}))
    assert ids_of(ice.scan(table, where="id >= 1000")) == [1000]


def test_a_data_scan_with_a_plan_of_its_own_is_asked_for_it(table: Table) -> None:
    asked = []

    class Reversed(DataScan):
        def plan_files(self) -> list[FileScanTask]:
            asked.append(True)
            return list(super().plan_files())[::-1]

    scan = Reversed(table.metadata, table.io, table_identifier=("db", "t"))
    assert ids_of(ice.scan(scan))[0] == ids_of(ice.scan(table))[-_FILE_ROWS]
    assert asked


def test_a_catalog_that_plans_scans_itself_is_asked(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = list(table.scan().plan_files())[:2]
    monkeypatch.setattr(table.catalog, "supports_server_side_planning", lambda: True)
    monkeypatch.setattr(DataScan, "_plan_files_server_side", lambda self: tasks)
    assert len(ids_of(ice.scan(table))) == 2 * _FILE_ROWS


# Failures


@pytest.mark.parametrize("which", ["list", "data", "deletes"])
def test_a_metadata_file_that_is_gone_is_named(table: Table, which: str) -> None:
    commit_position_deletes(table, {data_file_paths(table)[0]: [0]})
    path = _metadata_file(table, which)
    Path(path.removeprefix("file://")).unlink()
    with pytest.raises(ice.FileMissingError, match=r"Load the table again") as caught:
        list(ice.scan(table))
    assert caught.value.path == path
    with pytest.raises(ice.FileMissingError):
        ice.scan(table).splits()


@pytest.mark.parametrize("damage", ["empty", "truncated", "noise", "flipped"])
@pytest.mark.parametrize("which", ["list", "data", "deletes"])
def test_a_damaged_metadata_file_is_named(table: Table, which: str, damage: str) -> None:
    commit_position_deletes(table, {data_file_paths(table)[0]: [0]})
    path = _metadata_file(table, which)
    file = Path(path.removeprefix("file://"))
    content = bytearray(file.read_bytes())
    content[-10] ^= 0xFF  # in the marker after the last block: what is in a block has no checksum
    damaged = {"empty": b"", "truncated": content[:-40], "noise": b"x" * 999, "flipped": content}
    file.write_bytes(bytes(damaged[damage]))
    with pytest.raises(ice.CorruptFileError) as caught:
        list(ice.scan(table))
    assert caught.value.path == path


@pytest.mark.parametrize("which", ["list", "data", "deletes"])
def test_transient_errors_are_tried_again(table: Table, which: str) -> None:
    commit_position_deletes(table, {data_file_paths(table)[0]: [0]})
    path = _metadata_file(table, which)
    io = _watch(table)
    failures = iter(range(2))

    def fail(opened: str) -> None:
        if opened == path and next(failures, None) is not None:
            raise OSError(errno.EIO, "Input/output error")

    io.on_open = fail
    scan = ice.scan(table, retry_wait_seconds=0)
    assert len(ids_of(scan)) == _MANIFESTS * _FILE_ROWS - 1
    failures = iter(range(10))
    with pytest.raises(ice.TransientReadError) as caught:
        list(ice.scan(table, retries=1, retry_wait_seconds=0))
    assert caught.value.path == path


def _metadata_file(table: Table, which: str) -> str:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    deletes, data = _manifests(table, ManifestContent.DELETES), _manifests(table)
    return {"list": snapshot.manifest_list, "data": data[-1], "deletes": deletes[0]}[which]


# What is held


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Fifteen hundred files of fifty columns, in three manifests; 600 have a delete file."""
    catalog = make_catalog(tmp_path_factory.mktemp("wide"))
    table = catalog.create_table("db.wide", wide_rows(50).schema)
    ice.append(table, wide_rows(50).to_reader())
    yield add_many_files(table, 1_500, per_manifest=500, position_deletes=600, linked=False)
    catalog.close()


def test_all_that_planning_holds_is_given_back(wide: Table, table: Table) -> None:
    budget = ice.MemoryBudget("64MB")
    splits = ice.scan(wide, memory=budget).iter_splits()
    next(splits)
    assert budget.held_bytes > 100_000, "the index and a chunk of a manifest are on the account"
    splits.close()
    assert budget.held_bytes == 0
    assert len(ice.scan(wide, memory=budget).splits()) == 1_500
    assert budget.held_bytes == 0
    batches = iter(ice.scan(table, memory=budget))
    next(batches)
    batches.close()
    assert budget.held_bytes == 0


def test_planning_holds_no_more_for_more_files(wide: Table) -> None:
    def peak(where: str | None) -> int:
        gc.collect()
        tracemalloc.start()
        try:
            for _ in ice.scan(wide, where=where).iter_splits():
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(None)
    assert peak(None) < 8_000_000  # PyIceberg's list of these takes some 30 MB
    assert peak("c0 >= 0") < 8_000_000


def test_a_split_is_small(wide: Table) -> None:
    splits = ice.scan(wide).splits()
    without = [split for split in splits if not split.deletes]
    assert len(without) == 900
    assert max(_own_bytes(split) for split in without) <= 600


def _own_bytes(split: Split) -> int:
    """What a split takes, without what it shares with others."""
    seen: set[int] = set()

    def size(thing: Any) -> int:
        if id(thing) in seen or isinstance(thing, (ReadContext, type(None), bool)):
            return 0
        seen.add(id(thing))
        held = sys.getsizeof(thing)
        if isinstance(thing, tuple):
            return held + sum(size(part) for part in thing)
        if isinstance(thing, Split):
            return held + sum(size(getattr(thing, name)) for name in thing.__slots__)
        return held

    return size(split)
