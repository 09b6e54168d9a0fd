"""Manifests that upkeep reads: some fields of every live file, and nothing that is truncated."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.manifest_entries import (
    CONTENT,
    FILE_PATH,
    RECORD_COUNT,
    ManifestEntries,
)
from tests.support.delete_files import commit_position_deletes
from tests.support.tables import data_file_paths

_ABSENT = 9_999  # not the id of a field


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three manifests with one file of 10, 20 and 30 rows each."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for rows in (10, 20, 30):
        ice.append(table, pa.table({"id": pa.array(range(rows), pa.int64())}))
    return table.refresh()


def _manifests(table: Table, entries: ManifestEntries) -> list[ManifestFile]:
    head = table.current_snapshot()
    assert head is not None
    return list(entries.manifests(head.manifest_list, has_files=True))


def _stored(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def test_fields_are_returned_in_the_order_in_which_they_are_named(table: Table) -> None:
    entries = ManifestEntries(table.io, MemoryBudget())
    fields = (RECORD_COUNT, _ABSENT, FILE_PATH, CONTENT)
    values = [
        tuple(v[n] for n in range(4))
        for _, v in entries.values(_manifests(table, entries), *fields)
    ]
    assert sorted(values) == [
        (rows, None, path, 0)
        for rows, path in sorted(
            (task.file.record_count, task.file.file_path) for task in table.scan().plan_files()
        )
    ]


def test_files_that_were_removed_are_left_out(table: Table) -> None:
    ice.delete(table, "id >= 20")
    entries = ManifestEntries(table.refresh().io, MemoryBudget())
    paths = [v[0] for _, v in entries.values(_manifests(table, entries), FILE_PATH)]
    assert sorted(paths) == sorted(data_file_paths(table))


def test_the_bytes_of_manifests_are_charged_and_given_back(table: Table) -> None:
    budget = MemoryBudget("1MB")
    entries = ManifestEntries(table.io, budget)
    assert len(list(entries.values(_manifests(table, entries), FILE_PATH))) == 3
    assert budget.peak_bytes > 0
    assert budget.held_bytes == 0


def test_a_limit_of_one_byte_hides_no_file(table: Table) -> None:
    entries = ManifestEntries(table.io, MemoryBudget(1))
    assert len(list(entries.values(_manifests(table, entries), FILE_PATH))) == 3
    with pytest.raises(ice.MemoryBudgetError):
        list(ice.scan(table, memory=1))


@pytest.mark.parametrize("may_miss", [False, True])
def test_a_manifest_that_is_gone_is_skipped_only_if_it_may_be_missing(
    table: Table, may_miss: bool
) -> None:
    entries = ManifestEntries(table.io, MemoryBudget())
    first, gone, last = _manifests(table, entries)
    _stored(gone.manifest_path).unlink()
    values = entries.values(
        [first, gone, last],
        RECORD_COUNT,
        may_miss=lambda path: may_miss and path == gone.manifest_path,
    )
    if may_miss:
        assert [manifest for manifest, _ in values] == [first, last]
        return
    with pytest.raises(ice.FileMissingError) as caught:
        list(values)
    assert caught.value.path == gone.manifest_path


def test_a_list_without_a_block_is_refused_if_its_snapshot_has_files(table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None
    path = _stored(head.manifest_list)
    content = path.read_bytes()
    path.write_bytes(content[: content.index(content[-16:]) + 16])
    entries = ManifestEntries(table.io, MemoryBudget())
    with pytest.raises(ice.CatalogError, match="has no complete block"):
        list(entries.manifests(head.manifest_list, has_files=True))
    assert list(entries.manifests(head.manifest_list, has_files=False)) == []


def test_a_damaged_manifest_is_a_catalog_error_that_names_it(table: Table) -> None:
    entries = ManifestEntries(table.io, MemoryBudget())
    manifests = _manifests(table, entries)
    _stored(manifests[1].manifest_path).write_bytes(b"damaged" * 1000)
    for read in (entries.files(manifests), entries.values(manifests, FILE_PATH)):
        with pytest.raises(ice.CatalogError, match=manifests[1].manifest_path):
            list(read)


def test_delete_files_are_read_whole(table: Table) -> None:
    path = data_file_paths(table)[0]
    commit_position_deletes(table, {path: [0, 1]})
    entries = ManifestEntries(table.refresh().io, MemoryBudget())
    deletes = [m for m in _manifests(table, entries) if m.content.name == "DELETES"]
    (file,) = entries.files(deletes)
    assert (file.record_count, file.spec_id) == (2, 0)
