"""`delete` from tables that ask for merge-on-read: files stay, and deletes say what is gone."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, EqualTo, LessThan, NotEqualTo
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from tests.support.loads import (
    BY_PART,
    batch,
    before_commits,
    ids,
    ids_of,
    listing,
    make_table,
    snapshots_of,
    summary_of,
)
from tests.support.tables import EVOLUTIONS, PARTITIONINGS, data_files

_ON_READ = {"write__delete__mode": "merge-on-read"}


def _delete_files(table: Table) -> list[DataFile]:
    head = table.refresh().current_snapshot()
    assert head is not None
    return [
        entry.data_file
        for manifest in head.manifests(table.io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


def _ask_for_it(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.delete.mode": "merge-on-read"})


def _ours(table: Table) -> list[int]:
    return sorted(v for batch in ice.scan(table.refresh()) for v in batch["id"].to_pylist())


def test_files_stay_and_their_rows_are_gone_in_one_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    files = {file.file_path for file in data_files(table)}
    report = ice.delete(table, "id = 3 or id = 7 or id = 8")
    assert ids_of(table) == _ours(table) == [0, 1, 2, 4, 5, 6, 9]
    assert {file.file_path for file in data_files(table)} == files
    assert len(snapshots_of(table)) == 3
    assert (report.rows_deleted, report.files_added, report.files_removed) == (3, 0, 0)
    assert report.delete_files_added == len(_delete_files(table)) == 2
    assert report.bytes_written == sum(f.file_size_in_bytes for f in _delete_files(table))
    assert summary_of(table).operation == Operation.DELETE
    assert summary_of(table)["added-position-deletes"] == "3"
    assert ice.orphans(table, older_than=0).count == 0


def test_a_second_delete_sees_the_first(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 10))
    ice.delete(table, "id < 3")
    report = ice.delete(table, "id < 5")
    assert report.rows_deleted == 2
    assert ids_of(table) == _ours(table) == [5, 6, 7, 8, 9]
    assert ice.delete(table, "id < 5").snapshot_id is None


def test_compaction_folds_the_deletes_in(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 10))
    ice.delete(table, "id = 3")
    ice.compact(table)
    assert _delete_files(table) == []
    assert ids_of(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_an_overwrite_writes_files_again_all_the_same(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 5))
    report = ice.overwrite(table, ids(10, 11), where="id = 3")
    assert (report.files_removed, report.delete_files_added) == (1, 0)
    assert ids_of(table) == [0, 1, 2, 4, 10]


def test_partitions_keep_their_deletes_apart(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART, **_ON_READ)
    ice.append(table, batch([(1, 1), (2, 1), (3, 2), (4, 2), (5, None), (6, None)]))
    ice.delete(table, "id = 1 or id = 3 or id = 5")
    assert ids_of(table) == _ours(table) == [2, 4, 6]
    found = {file.partition[0]: file.spec_id for file in _delete_files(table)}
    assert found == {1: 0, 2: 0, None: 0}


@pytest.mark.parametrize("recipe", EVOLUTIONS.values(), ids=EVOLUTIONS.keys())
def test_rows_of_evolved_schemas_go(catalog: SqlCatalog, recipe: Any) -> None:
    evolved = recipe(catalog)
    _ask_for_it(evolved.table)
    gone = evolved.expected[0]["id"]
    ice.delete(evolved.table, EqualTo("id", gone))
    left = sorted(evolved.table.refresh().scan().to_arrow().to_pylist(), key=lambda r: r["id"])
    assert left == [row for row in evolved.expected if row["id"] != gone]
    assert _ours(evolved.table) == [row["id"] for row in left]


@pytest.mark.parametrize("recipe", PARTITIONINGS.values(), ids=PARTITIONINGS.keys())
def test_rows_of_every_partitioning_go(catalog: SqlCatalog, recipe: Any) -> None:
    partitioned = recipe(catalog)
    _ask_for_it(partitioned.table)
    ice.delete(partitioned.table, And(LessThan("id", 25), NotEqualTo("category", "red")))
    gone = [r for r in partitioned.expected if r["id"] < 25 and r["category"] not in ("red", None)]
    found = partitioned.table.refresh().scan().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        row for row in partitioned.expected if row not in gone
    ]


def _compacted(table: Table) -> None:
    ice.compact(table)


def _deleted_too(table: Table) -> None:
    ice.delete(table, "id = 4")


def _rewritten(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.delete.mode": "copy-on-write"})
    ice.delete(table, "id = 4")


@pytest.mark.parametrize("meanwhile", [_compacted, _deleted_too, _rewritten])
def test_a_delete_beside_a_change_of_the_same_file_is_refused(
    catalog: SqlCatalog, meanwhile: Any
) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    other = catalog.load_table("db.t")
    with (
        before_commits(catalog, lambda: meanwhile(other)),
        pytest.raises(ice.CommitConflictError, match="start again"),
    ):
        ice.delete(table, "id = 3")
    assert 3 in ids_of(table)
    in_use = {file.file_path.rpartition("/")[2] for file in _delete_files(table)}
    stored = {name.rpartition("/")[2] for name in listing(table) if "-deletes" in name}
    assert stored == in_use


def test_a_delete_beside_a_delete_from_another_file_is_tried_again(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    other = catalog.load_table("db.t")
    with before_commits(catalog, lambda: ice.delete(other, "id = 7")):
        report = ice.delete(table, "id = 3")
    assert report.commit_attempts == 2
    assert ids_of(table) == [0, 1, 2, 4, 5, 6, 8, 9]
