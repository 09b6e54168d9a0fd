"""Manifests are read record by record, as PyIceberg reads them, and damage is found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.read.plan import manifests
from icestream.read.plan.manifests import (
    MetadataFiles,
    added_entries,
    has_count,
    is_cut_off,
    metadata_files,
)
from tests.support.tables import add_parquet_file, data_file_paths

_MANIFESTS = 4


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """One file of ten rows in each of four manifests."""
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    for number in range(_MANIFESTS):
        add_parquet_file(table, pa.table({"id": list(range(number * 10, number * 10 + 10))}))
    return table


@pytest.fixture
def files(table: Table) -> Iterator[MetadataFiles]:
    budget = MemoryBudget("16MB")
    yield metadata_files(table.io, table="db.t", budget=budget)
    assert budget.held_bytes == 0


def _head(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


def test_manifests_and_entries_are_those_of_pyiceberg(table: Table, files: MetadataFiles) -> None:
    expected = _head(table).manifests(table.io)
    assert files.manifests_of(_head(table)) == expected
    for manifest in expected:
        entries = list(files.entries(manifest))
        assert entries == manifest.fetch_manifest_entry(table.io)
        assert [entry.sequence_number for entry in entries] == [manifest.sequence_number]
        assert [entry.snapshot_id for entry in entries] == [manifest.added_snapshot_id]


@pytest.mark.parametrize("at_once", [1, 8])
def test_entries_of_several_manifests_come_in_their_order(
    table: Table, files: MetadataFiles, at_once: int
) -> None:
    paths = [
        entry.data_file.file_path
        for entry in files.entries_of(files.manifests_of(_head(table)), at_once=at_once)
    ]
    assert sorted(paths) == sorted(data_file_paths(table))
    expected = [task.file.file_path for task in table.scan().plan_files()]
    assert paths == expected


def test_entries_of_removed_files_come_only_on_request(table: Table, files: MetadataFiles) -> None:
    ice.delete(table, "id < 10")
    found = files.manifests_of(_head(table))
    live = [entry for manifest in found for entry in files.entries(manifest)]
    every = [entry for manifest in found for entry in files.entries(manifest, removed=True)]
    removed = [e for e in every if e.status == ManifestEntryStatus.DELETED]
    assert len(live) == _MANIFESTS - 1
    assert len(removed) == len(every) - len(live) == 1


def test_the_files_that_a_snapshot_added_are_found(table: Table) -> None:
    before = set(data_file_paths(table))
    add_parquet_file(table, pa.table({"id": [100]}))
    budget = MemoryBudget()
    entries = list(added_entries(table.io, _head(table), table="db.t", budget=budget))
    assert {entry.data_file.file_path for entry in entries} == set(data_file_paths(table)) - before
    assert budget.held_bytes == 0


@pytest.mark.parametrize("lost_bytes", [1, 100])
def test_a_truncated_manifest_is_an_error_that_names_it(
    table: Table, files: MetadataFiles, lost_bytes: int
) -> None:
    manifest = files.manifests_of(_head(table))[0]
    path = Path(manifest.manifest_path.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-lost_bytes])
    with pytest.raises(ice.CorruptFileError, match=r"db\.t") as caught:
        list(files.entries(manifest))
    assert caught.value.path == manifest.manifest_path


def test_a_manifest_that_is_shorter_than_its_list_records_is_an_error(
    table: Table, files: MetadataFiles
) -> None:
    manifest = files.manifests_of(_head(table))[0]
    longer = manifest.manifest_length + 1
    manifest[1] = longer  # The length in the manifest list.
    with pytest.raises(ice.CorruptFileError, match=f"instead of {longer}"):
        list(files.entries(manifest))
    with (
        closing(files.fetch(manifest.manifest_path)) as content,
        pytest.raises(ice.CorruptFileError, match=f"instead of {longer}"),
    ):
        list(files.entries(manifest, content))


def test_a_file_is_cut_off_if_it_has_a_header_and_no_block(table: Table) -> None:
    content = Path(_head(table).manifest_list.removeprefix("file://")).read_bytes()
    header = content[: content.index(content[-16:]) + 16]
    assert is_cut_off(header)
    assert not is_cut_off(content)


@pytest.mark.parametrize(
    ("summary", "has_files"),
    [
        ({}, False),
        ({"total-data-files": "0", "total-delete-files": "0"}, False),
        ({"total-data-files": "3"}, True),
        ({"total-delete-files": "10"}, True),
        ({"total-data-files": "many"}, False),
        ({"total-data-files": 2}, True),
    ],
)
def test_a_summary_says_whether_there_are_files(summary: dict[str, Any], has_files: bool) -> None:
    assert has_count(summary) is has_files


def test_manifests_of_one_shape_share_a_reader(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests._record_reader.cache_clear()
    resolve, resolved = manifests.resolve_reader, []

    def counted(*arguments: Any) -> Any:
        resolved.append(arguments)
        return resolve(*arguments)

    monkeypatch.setattr(manifests, "resolve_reader", counted)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) > 2
    assert ice.scan(table).splits()
    assert len(resolved) <= 3  # of lists, of manifests of data and of deletes


def test_doubles_in_partitions_are_exact(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    table = catalog.create_table("db.d", Schema(NestedField(1, "x", DoubleType())), None, spec)
    add_parquet_file(table, pa.table({"x": [0.1, 0.1]}))
    (split,) = ice.scan(table, where="x = 0.1").splits()
    assert split.constants == ((1, 0.1),)
    assert not split.filtered
