"""Files are cut at row groups, up to the target size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

import icestream as ice
from tests.support.scans import ids_of
from tests.support.stream_tables import create_four_files
from tests.support.tables import add_parquet_file


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return create_four_files(catalog)


@pytest.mark.parametrize("target_bytes", [1, 300, 1_000, "2kB", "1GiB"])
@pytest.mark.parametrize("where", [None, "id >= 55 and id < 377"])
def test_splits_of_any_size_cover_every_row_exactly_once(
    table: Table, target_bytes: Any, where: str | None
) -> None:
    scan = ice.scan(table, where=where)
    splits = scan.splits(target_bytes=target_bytes)
    everything = ids_of(scan)
    assert everything == (list(range(400)) if where is None else list(range(55, 377)))
    assert ids_of(ice.read_splits(splits)) == everything
    assert sorted(ids_of(ice.read_splits(splits, order=ice.ArrivalOrder()))) == everything
    alone = [i for split in splits for i in ids_of(ice.read_splits([split]))]
    assert alone == everything
    assert sum(split.rows for split in splits) == sum(s.rows for s in scan.splits("1GiB"))


def test_a_file_is_cut_at_row_groups_and_no_smaller(table: Table) -> None:
    splits = ice.scan(table).splits(target_bytes=1)
    cut = [split for split in splits if split.format == "parquet"]
    assert [split.row_groups for split in cut] == [(n,) for n in range(10)] * 3
    assert all(split.rows == 10 for split in cut)
    (orc,) = [split for split in splits if split.format == "orc"]
    assert orc.row_groups is None
    assert orc.rows == 100


def test_consecutive_row_groups_are_joined_up_to_the_target(table: Table) -> None:
    finest = ice.scan(table).splits(target_bytes=1)[:10]
    target = sum(split.bytes for split in finest[:4])
    joined = [s for s in ice.scan(table).splits(target) if s.path == finest[0].path]
    assert joined[0].row_groups == (0, 1, 2, 3)
    assert joined[0].rows == 40
    assert joined[0].bytes == target
    assert all(split.bytes <= target for split in joined)
    assert [group for split in joined for group in split.row_groups or ()] == list(range(10))


def test_the_target_comes_from_the_tables_property(table: Table) -> None:
    assert len(ice.scan(table).splits()) == 4
    with table.transaction() as transaction:
        transaction.set_properties({"read.split.target-size": "1"})
    assert len(ice.scan(table).splits()) == 31
    assert len(ice.scan(table).splits(target_bytes="1GB")) == 4


@pytest.mark.parametrize("value", ["many", "-1", "0", "1.5"])
def test_a_property_that_is_no_size_is_named(table: Table, value: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"read.split.target-size": value})
    with pytest.raises(ice.InvalidArgumentError, match=r"read\.split\.target-size"):
        ice.scan(table).splits()


@pytest.mark.parametrize("value", [0, -1, True, "much", 1.5])
def test_a_target_that_is_no_size_is_refused(table: Table, value: Any) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="target_bytes"):
        ice.scan(table).splits(target_bytes=value)


def test_an_empty_parquet_file_is_cut_into_nothing_bad(catalog: Catalog) -> None:
    table = catalog.create_table("db.empty_file", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": pa.array([], pa.int64())}))
    options = {"include_empty_files": "true"}
    splits = ice.scan(table.scan(options=options)).splits(target_bytes=1)
    assert len(splits) == 1
    assert list(ice.read_splits(splits)) == []


def test_cutting_a_file_that_is_gone_names_it(table: Table) -> None:
    scan = ice.scan(table)
    path = scan.splits()[0].path
    Path(path.removeprefix("file://")).unlink()
    with pytest.raises(ice.FileMissingError) as caught:
        scan.splits(target_bytes=1)
    assert caught.value.path == path


def test_whole_files_are_grouped_in_plan_order(many_files: Table) -> None:
    scan = ice.scan(many_files)
    groups = scan.splits(files_per_split=3)
    assert {len(group) for group in groups[:-1]} == {3}
    assert [split.id for group in groups for split in group] == [s.id for s in scan.splits("1GB")]
    first = sum(batch.num_rows for batch in ice.read_splits(groups[0]))
    assert first == sum(split.rows for split in groups[0])


@pytest.mark.parametrize("files", [0, -1, 1.5, True])
def test_a_group_needs_a_whole_number_of_files(many_files: Table, files: Any) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="1 or more"):
        ice.scan(many_files).splits(files_per_split=files)


def test_files_are_either_cut_or_grouped(many_files: Table) -> None:
    scan: Any = ice.scan(many_files)
    with pytest.raises(ice.InvalidArgumentError, match="or files_per_split"):
        scan.splits("1MB", files_per_split=2)
