"""Deleted rows stay away: position deletes and deletion vectors, in every arrangement."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.read.decode.files import RetryPolicy
from icestream.read.deletes.delete_files import DeletedPositions, _read_all, _read_for
from icestream.read.split import DeleteFile
from tests.support.delete_files import (
    commit_deletion_vectors,
    commit_equality_deletes,
    commit_position_deletes,
    write_position_deletes,
)
from tests.support.scans import ids_of
from tests.support.tables import (
    add_orc_file,
    add_parquet_file,
    commit_files,
    data_file_paths,
    upgrade_to_v3,
    write_parquet_file,
)

_ORDERS = [ice.TaskOrder(), ice.ArrivalOrder(concurrent_streams=4)]
orders = pytest.mark.parametrize("order", _ORDERS, ids=["task", "arrival"])


def _local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def _make(
    catalog: Catalog, files: int = 3, rows: int = 100, file_format: str = "parquet", **options: Any
) -> Table:
    """A table of files with consecutive ids: file k holds k * rows and so on."""
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    for number in range(files):
        ids = pa.table({"id": list(range(number * rows, (number + 1) * rows))})
        if file_format == "orc":
            add_orc_file(table, ids, **options)
        else:
            add_parquet_file(table, ids, **options)
    return table


def _deleted(positions: list[list[int]], rows: int = 100) -> set[int]:
    return {number * rows + p for number, of_file in enumerate(positions) for p in of_file}


def _by_path(table: Table, positions: list[list[int]]) -> dict[str, list[int]]:
    paths = data_file_paths(table)
    return {path: p for path, p in zip(paths, positions, strict=True) if p}


_POSITIONS = [[0, 1, 50, 99], list(range(10, 60)), []]


@orders
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("delete_format", ["parquet", "orc"])
@pytest.mark.parametrize("one_file", [False, True])
def test_position_deletes_of_every_format_apply_to_data_of_every_format(
    catalog: Catalog, file_format: str, delete_format: Any, one_file: bool, order: Any
) -> None:
    table = _make(catalog, file_format=file_format)
    commit_position_deletes(
        table, _by_path(table, _POSITIONS), one_file=one_file, file_format=delete_format
    )
    kept = sorted(set(range(300)) - _deleted(_POSITIONS))
    assert sorted(ids_of(ice.scan(table, order=order))) == kept


@orders
@pytest.mark.parametrize("row_group_rows", [1, 9, 100])
def test_deletes_fall_on_the_right_rows_whatever_the_batches_and_row_groups(
    catalog: Catalog, row_group_rows: int, order: Any
) -> None:
    table = _make(catalog, row_group_rows=row_group_rows)
    commit_position_deletes(table, _by_path(table, _POSITIONS), one_file=True)
    kept = sorted(set(range(300)) - _deleted(_POSITIONS))
    for batch_size in (1, 7, 64, 1000):
        batches = list(ice.scan(table, order=order, batch_size=batch_size))
        assert max(batch.num_rows for batch in batches) <= batch_size
        assert sorted(i for batch in batches for i in batch["id"].to_pylist()) == kept


@orders
def test_deletes_fall_on_the_right_rows_after_row_groups_were_skipped(
    catalog: Catalog, order: Any
) -> None:
    table = _make(catalog, row_group_rows=5)
    commit_position_deletes(table, _by_path(table, _POSITIONS))
    kept = set(range(300)) - _deleted(_POSITIONS)
    scan = ice.scan(table, where="(id >= 42 and id < 73) or id = 151 or id > 290", order=order)
    wanted = {i for i in kept if 42 <= i < 73 or i == 151 or i > 290}
    assert sorted(ids_of(scan)) == sorted(wanted)
    assert scan.report.row_groups_skipped > 30


def test_a_split_of_row_groups_takes_the_deletes_of_its_own_rows(catalog: Catalog) -> None:
    table = _make(catalog, row_group_rows=5)
    commit_position_deletes(table, _by_path(table, _POSITIONS), one_file=True)
    kept = sorted(set(range(300)) - _deleted(_POSITIONS))
    splits = ice.scan(table).splits(target_bytes=1)
    assert len(splits) == 60
    alone = [i for split in splits for i in ids_of(ice.read_splits([split]))]
    assert sorted(alone) == kept
    assert sorted(ids_of(ice.read_splits(splits[::-1]))) == kept


def test_many_delete_files_for_one_data_file_add_up(catalog: Catalog) -> None:
    table = _make(catalog, files=1)
    (path,) = data_file_paths(table)
    for positions in ([0, 1, 2], [2, 3], [99], [0, 99], [50]):
        commit_position_deletes(table, {path: positions})
    assert ids_of(ice.scan(table)) == sorted(set(range(100)) - {0, 1, 2, 3, 50, 99})


def test_deletes_of_the_same_snapshot_apply(catalog: Catalog) -> None:
    table = _make(catalog, files=1)
    data_file = write_parquet_file(table, pa.table({"id": [100, 101, 102]}))
    deletes = write_position_deletes(table, [data_file], {data_file.file_path: [1]})
    commit_files(table, [data_file], deletes)
    assert sorted(ids_of(ice.scan(table))) == [*range(100), 100, 102]


def test_a_file_of_which_every_row_is_deleted_gives_no_batch(catalog: Catalog) -> None:
    table = _make(catalog, files=2)
    commit_position_deletes(table, _by_path(table, [list(range(100)), []]))
    assert ids_of(ice.scan(table)) == list(range(100, 200))
    commit_position_deletes(table, _by_path(table, [[], list(range(100))]))
    assert list(ice.scan(table)) == []


def test_deletes_apply_only_to_files_of_their_partition(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("db.partitioned", schema, partition_spec=spec)
    for number, name in enumerate(["a", "b", None]):
        ids = list(range(number * 10, number * 10 + 10))
        rows = pa.table({"id": ids, "p": pa.array([name] * 10, pa.string())})
        add_parquet_file(table, rows)
    commit_position_deletes(table, _by_path(table, [[0], [1, 2], [9]]), one_file=True)
    assert sorted(ids_of(ice.scan(table))) == sorted(set(range(30)) - {0, 11, 12, 29})
    assert sorted(ids_of(ice.scan(table, where="p = 'b'"))) == [10, *range(13, 20)]


@orders
def test_a_limit_counts_rows_that_are_left(catalog: Catalog, order: Any) -> None:
    table = _make(catalog, row_group_rows=10)
    commit_position_deletes(table, _by_path(table, _POSITIONS))
    kept = set(range(300)) - _deleted(_POSITIONS)
    for limit in (1, 40, 96, 97, 200, 246, 247):
        ids = ids_of(ice.scan(table, limit=limit, order=order))
        assert len(ids) == len(set(ids)) == min(limit, len(kept))
        assert set(ids) <= kept


def test_columns_that_no_file_holds_are_counted_without_deleted_rows(catalog: Catalog) -> None:
    table = _make(catalog, files=1)
    commit_position_deletes(table, _by_path(table, [[3, 4]]))
    with table.update_schema() as update:
        update.add_column("new", StringType())
    assert sum(batch.num_rows for batch in ice.scan(table, columns=["new"])) == 98


# Delete files as other writers leave them


def _commit_delete_file(table: Table, contents: pa.Table, **options: Any) -> str:
    """Commit a Parquet position delete file of these contents, for an unpartitioned table."""
    location = table.location_provider().new_data_location("deletes.parquet")
    with table.io.new_output(location).create() as stream:
        pq.write_table(contents, stream, **options)
    delete_file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=contents.num_rows,
        file_size_in_bytes=len(table.io.new_input(location)),
    )
    delete_file.spec_id = 0
    commit_files(table, added_delete_files=[delete_file])
    return location


@pytest.mark.parametrize(
    "text",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
@pytest.mark.parametrize("memory", ["256MB", "8MB"])
def test_paths_are_found_however_they_are_spelt(
    catalog: Catalog, text: pa.DataType, memory: str
) -> None:
    table = _make(catalog, files=2, rows=100)
    first, second = data_file_paths(table)
    # Not sorted, with repeats, and with files that are not in the table; in 8 MB too many to keep.
    paths = [second, first, "gone", second, first] + ["gone"] * 70_000
    positions = [5, 99, 1, 5, 7, *range(70_000)]
    contents = pa.table(
        {
            "row": pa.nulls(len(paths), pa.int32()),
            "pos": pa.array(positions, pa.int64()),
            "file_path": pa.array(paths).cast(text),
        }
    )
    _commit_delete_file(table, contents, row_group_size=20_000)
    expected = sorted(set(range(200)) - {7, 99, 105})
    assert sorted(ids_of(ice.scan(table, memory=memory, batch_size=10))) == expected


def test_an_empty_delete_file_deletes_nothing(catalog: Catalog) -> None:
    table = _make(catalog, files=1)
    empty = pa.table({"file_path": pa.array([], pa.string()), "pos": pa.array([], pa.int64())})
    _commit_delete_file(table, empty)
    assert ids_of(ice.scan(table)) == list(range(100))


class _CountingIO(PyArrowFileIO):
    """Counts how often each file is opened."""

    opened: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.opened = []

    def new_input(self, location: str) -> Any:
        self.opened.append(location)
        return super().new_input(location)


def _held(cache: DeletedPositions, split: ice.Split) -> list[int]:
    """The deleted positions of a split, let go of again."""
    rows = cache.of(split)
    rows.release()
    found: list[int] = rows.positions.between(0, 1 << 62).tolist()
    return found


def _positions(budget: MemoryBudget) -> DeletedPositions:
    return DeletedPositions(budget, RetryPolicy(0), threading.Event(), lambda: None)


def test_a_delete_file_of_many_data_files_is_read_once_and_held_on_lease(
    catalog: Catalog,
) -> None:
    table = _make(catalog, files=4)
    expected = _by_path(table, [[1], [2, 3], [4], [5]])
    (deletes,) = commit_position_deletes(table, expected, one_file=True)
    table.io = counting = _CountingIO()
    budget = MemoryBudget("1MB")
    cache = _positions(budget)
    splits = ice.scan(table).splits()
    counting.opened.clear()
    found = {split.path: _held(cache, split) for split in splits}
    assert found == expected
    assert counting.opened == [deletes]
    assert 0 < budget.held_bytes < 4_000
    cache.close()
    assert budget.held_bytes == 0


def test_kept_positions_make_room_for_others_within_a_quarter_of_the_budget(
    catalog: Catalog,
) -> None:
    table = _make(catalog, files=4)
    for number in range(6):
        positions = [[number * 10 + n for n in range(10)] for _ in range(4)]
        commit_position_deletes(table, _by_path(table, positions), one_file=True)
    budget = MemoryBudget(30_000)  # Each of the six delete files takes about 2,600 bytes.
    cache = _positions(budget)
    for split in ice.scan(table).splits():
        assert _held(cache, split) == list(range(60))
        assert 0 < budget.held_bytes <= 7_500
    cache.close()
    assert budget.held_bytes == 0


def test_a_large_delete_file_is_read_for_one_data_file_at_a_time(catalog: Catalog) -> None:
    table = _make(catalog, files=3)
    commit_position_deletes(table, _by_path(table, [[1], list(range(80)), [4]]), one_file=True)
    budget = MemoryBudget(8_000)  # An eighth of it does not hold the positions of three files.
    cache = _positions(budget)
    found = {split.path: _held(cache, split) for split in ice.scan(table).splits()}
    assert found == _by_path(table, [[1], list(range(80)), [4]])
    assert budget.held_bytes == 0


def test_positions_of_thousands_of_files_in_one_delete_file_are_found(tmp_path: Path) -> None:
    """Their paths are told apart by one pass over the rows, sorted or not."""
    files = 3_000
    paths = [f"file:///t/{number:05}.parquet" for number in range(files) for _ in range(20)]
    positions = list(range(20)) * files
    order = np.random.default_rng(5).permutation(len(paths))
    for number, rows in enumerate([np.arange(len(paths)), order]):
        path = tmp_path / f"{number}.parquet"
        columns = {"file_path": np.array(paths)[rows], "pos": np.array(positions)[rows]}
        pq.write_table(pa.table(columns), path)
        delete = DeleteFile(str(path), "parquet", path.stat().st_size, len(paths))
        by_file = _read_all(PyArrowFileIO(), delete, 64 << 20, 65_536)
        assert by_file is not None
        assert len(by_file) == files
        assert all(found.between(0, 100).tolist() == list(range(20)) for found in by_file.values())
        assert _read_all(PyArrowFileIO(), delete, 100_000, 65_536) is None
        only = _read_for(PyArrowFileIO(), delete, paths[40], 1_024)
        assert only.between(0, 100).tolist() == list(range(20))


# Deletion vectors


@orders
@pytest.mark.parametrize("one_puffin", [False, True])
def test_deletion_vectors_apply_to_their_own_data_files(
    catalog: Catalog, one_puffin: bool, order: Any
) -> None:
    table = upgrade_to_v3(_make(catalog, row_group_rows=7))
    commit_deletion_vectors(table, _by_path(table, _POSITIONS), one_puffin=one_puffin)
    kept = sorted(set(range(300)) - _deleted(_POSITIONS))
    assert sorted(ids_of(ice.scan(table, order=order, batch_size=11))) == kept


def test_a_replaced_deletion_vector_is_superseded(catalog: Catalog) -> None:
    table = upgrade_to_v3(_make(catalog, files=2))
    commit_deletion_vectors(table, _by_path(table, [[1, 2], [3]]))
    before = table.current_snapshot()
    commit_deletion_vectors(table, _by_path(table, [[5], []]))
    assert sorted(ids_of(ice.scan(table))) == sorted(set(range(200)) - {1, 2, 5, 103})
    assert before is not None
    then = ice.scan(table, snapshot_id=before.snapshot_id)
    assert sorted(ids_of(then)) == sorted(set(range(200)) - {1, 2, 103})


def test_old_position_deletes_and_new_vectors_apply_together(catalog: Catalog) -> None:
    table = _make(catalog, files=2)
    commit_position_deletes(table, _by_path(table, [[1], [2]]))
    upgrade_to_v3(table)
    commit_deletion_vectors(table, _by_path(table, [[7], []]))
    assert sorted(ids_of(ice.scan(table))) == sorted(set(range(200)) - {1, 7, 102})


# What goes wrong


@orders
@pytest.mark.parametrize("delete_format", ["parquet", "orc"])
def test_a_missing_delete_file_is_named(catalog: Catalog, delete_format: Any, order: Any) -> None:
    table = _make(catalog)
    paths = commit_position_deletes(table, _by_path(table, _POSITIONS), file_format=delete_format)
    _local(paths[0]).unlink()
    with pytest.raises(ice.FileMissingError) as caught:
        list(ice.scan(table, order=order))
    assert caught.value.path == paths[0]
    assert paths[0] in str(caught.value)
    owners = {s.id for s in ice.scan(table).splits() if paths[0] in [d.path for d in s.deletes]}
    assert caught.value.split in owners


def test_a_missing_puffin_file_is_named(catalog: Catalog) -> None:
    table = upgrade_to_v3(_make(catalog, files=1))
    (puffin,) = commit_deletion_vectors(table, _by_path(table, [[1]]))
    _local(puffin).unlink()
    with pytest.raises(ice.FileMissingError) as caught:
        list(ice.scan(table))
    assert caught.value.path == puffin


@orders
@pytest.mark.parametrize("delete_format", ["parquet", "orc"])
def test_a_damaged_delete_file_is_named(catalog: Catalog, delete_format: Any, order: Any) -> None:
    table = _make(catalog, files=1)
    (path,) = commit_position_deletes(table, _by_path(table, [[1]]), file_format=delete_format)
    _local(path).write_bytes(b"no delete file at all")
    with pytest.raises(ice.CorruptFileError) as caught:
        list(ice.scan(table, order=order))
    assert caught.value.path == path


@pytest.mark.parametrize("version", [2, 3])
def test_equality_deletes_are_refused_by_the_name_of_the_file(
    catalog: Catalog, version: int
) -> None:
    table = _make(catalog, files=1)
    if version == 3:
        upgrade_to_v3(table)
    path = commit_equality_deletes(table, ["id"], [{"id": 5}])
    scan = ice.scan(table)
    with pytest.raises(ice.UnsupportedFeatureError, match="equality deletes") as caught:
        list(scan)
    assert path in str(caught.value)
    with pytest.raises(ice.UnsupportedFeatureError):
        ice.scan(table).splits()


def test_a_snapshot_before_equality_deletes_can_still_be_read(catalog: Catalog) -> None:
    table = _make(catalog, files=1)
    before = table.current_snapshot()
    assert before is not None
    commit_equality_deletes(table, ["id"], [{"id": 5}])
    assert len(ids_of(ice.scan(table, snapshot_id=before.snapshot_id))) == 100


def test_an_avro_delete_file_is_refused_by_format(catalog: Catalog) -> None:
    table = _make(catalog, files=1)
    delete_file = DataFile.from_args(
        _table_format_version=2,
        content=DataFileContent.POSITION_DELETES,
        file_path="file:///nowhere/deletes.avro",
        file_format=FileFormat.AVRO,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    delete_file.spec_id = 0
    commit_files(table, added_delete_files=[delete_file])
    with pytest.raises(ice.UnsupportedFeatureError, match=r"(?i)avro") as caught:
        ice.scan(table).splits()
    assert "deletes.avro" in str(caught.value)
