"""Small manifests are merged as the table properties say, and nothing else changes."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.snapshot.manifest_bins import ManifestMerge
from tests.support.loads import before_commits

ROWS = pa.schema([("id", pa.int64())])


def _manifest(name: str, length: int, spec_id: int = 0) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=name,
        manifest_length=length,
        partition_spec_id=spec_id,
        content=ManifestContent.DATA,
    )


MIN_COUNT = "commit.manifest.min-count-to-merge"
TARGET = "commit.manifest.target-size-bytes"


def _rows(table: Table) -> list[tuple[int]]:
    rows = ice.scan(table).to_reader().read_all()
    return sorted((row["id"],) for row in rows.to_pylist())


def _names(properties: dict[str, str], *manifests: ManifestFile) -> list[str]:
    groups = ManifestMerge.of(properties).bins(manifests)
    return ["".join(manifest.manifest_path for manifest in group) for group in groups]


def test_the_newest_manifests_wait_until_there_are_enough() -> None:
    few = [_manifest(name, 10) for name in "ba"]
    assert _names({MIN_COUNT: "3"}, *few) == ["b", "a"]
    assert _names({MIN_COUNT: "3"}, _manifest("c", 10), *few) == ["cba"]


def test_full_groups_are_made_of_the_oldest_manifests() -> None:
    manifests = [_manifest(name, 40) for name in "edcba"]
    assert _names({MIN_COUNT: "9", TARGET: "100"}, *manifests) == ["e", "dc", "ba"]


def test_a_manifest_of_the_target_size_stays_as_it_is() -> None:
    manifests = [_manifest("c", 10), _manifest("b", 200), _manifest("a", 200)]
    assert _names({MIN_COUNT: "2", TARGET: "100"}, *manifests) == ["c", "b", "a"]


def test_manifests_of_different_partition_specs_are_not_mixed() -> None:
    manifests = [_manifest(name, 10, spec_id=number % 2) for number, name in enumerate("dcba")]
    assert _names({MIN_COUNT: "2"}, *manifests) == ["db", "ca"]


def test_nothing_is_merged_if_the_table_says_so() -> None:
    manifests = [_manifest(name, 10) for name in "cba"]
    properties = {MIN_COUNT: "2", "commit.manifest-merge.enabled": "false"}
    assert _names(properties, *manifests) == ["c", "b", "a"]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    return catalog.create_table("db.t", ROWS, properties={MIN_COUNT: "3"})


def _manifests(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.manifests(table.io)


def test_commits_keep_the_number_of_manifests_small_and_all_rows(table: Table) -> None:
    for number in range(12):
        ice.append(table, pa.table({"id": [number]}, schema=ROWS))
        assert len(_manifests(table)) <= 4
    assert _rows(table) == [(number,) for number in range(12)]
    assert table.inspect.entries().num_rows == 12


def test_entries_keep_their_snapshots_and_sequence_numbers(table: Table) -> None:
    for number in range(4):
        ice.append(table, pa.table({"id": [number]}, schema=ROWS))
    merged = min(_manifests(table), key=lambda manifest: manifest.min_sequence_number)
    entries = merged.fetch_manifest_entry(table.io)
    assert {entry.status for entry in entries} == {ManifestEntryStatus.EXISTING}
    assert sorted(entry.sequence_number or 0 for entry in entries) == [1, 2, 3]
    added = {snapshot.snapshot_id for snapshot in table.metadata.snapshots[:3]}
    assert {entry.snapshot_id for entry in entries} == added
    assert merged.min_sequence_number == 1


def test_deleted_rows_stay_deleted_when_delete_manifests_are_merged(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"write.delete.mode": "merge-on-read"})
    ice.append(table, pa.table({"id": range(10)}, schema=ROWS))
    for number in range(0, 10, 2):
        ice.delete(table, f"id = {number}")
    deletes = [each for each in _manifests(table) if each.content == ManifestContent.DELETES]
    assert len(deletes) < 5
    assert _rows(table) == [(number,) for number in range(1, 10, 2)]
    ice.append(table, pa.table({"id": [0]}, schema=ROWS))
    assert (0,) in _rows(table)


def test_a_conflict_is_seen_although_the_concurrent_commit_merged_manifests(table: Table) -> None:
    for number in range(3):
        ice.append(table, pa.table({"id": [number]}, schema=ROWS))
    other = table.catalog.load_table("db.t")

    def add_a_row() -> None:
        ice.append(other, pa.table({"id": [7]}, schema=ROWS))
        assert len(_manifests(other)) == 2

    with (
        before_commits(table.catalog, add_a_row),
        pytest.raises(ice.CommitConflictError, match="added rows"),
    ):
        ice.merge(table, pa.table({"id": [7]}, schema=ROWS), on="id")
    assert _rows(table.refresh()) == [(0,), (1,), (2,), (7,)]


def test_old_snapshots_read_the_manifests_that_they_had(table: Table) -> None:
    for number in range(6):
        ice.append(table, pa.table({"id": [number]}, schema=ROWS))
    for number, snapshot in enumerate(table.metadata.snapshots):
        assert ice.scan(
            table, snapshot_id=snapshot.snapshot_id
        ).to_reader().read_all().num_rows == (number + 1)
