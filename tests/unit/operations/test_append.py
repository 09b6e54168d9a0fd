"""`append`: one snapshot, the right rows, the right words about them."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import TruncateTransform

import icestream as ice
from tests.support.loads import (
    BY_PART,
    batch,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.tables import data_files


@pytest.mark.parametrize("version", [1, 2])
def test_an_append_is_one_snapshot_with_all_rows(catalog: SqlCatalog, version: int) -> None:
    table = make_table(catalog, version=version)
    first = ice.append(table, ids(0, 3))
    report = ice.append(table, ids(3, 5).to_batches())
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert snapshots_of(table) == [first.snapshot_id, report.snapshot_id]
    assert head_of(table).parent_snapshot_id == first.snapshot_id
    assert report.operation == "append"
    assert (report.rows_inserted, report.rows_deleted) == (2, 0)
    assert (report.files_added, report.files_removed) == (1, 0)
    assert report.commit_attempts == 1
    assert not report.already_committed
    sizes = {file.file_path: file.file_size_in_bytes for file in data_files(table)}
    assert first.bytes_written + report.bytes_written == sum(sizes.values())


@pytest.mark.parametrize("spec", [None, BY_PART], ids=["whole", "partitioned"])
@pytest.mark.parametrize("version", [1, 2])
def test_the_summary_says_what_pyiceberg_would(
    catalog: SqlCatalog, spec: object, version: int
) -> None:
    """File sizes aside: ours have other row groups and paths."""
    options = {"version": version, "write__summary__partition_limit": "10"}
    if spec is not None:
        options["spec"] = spec
    ours, theirs = (make_table(catalog, f"db.{n}", **options) for n in ("ours", "theirs"))
    for rows in (batch([(1, 1), (2, 2), (3, 1)]), batch([(4, 4), (5, None), (6, 1)])):
        ice.append(ours, rows)
        theirs.append(rows)
        mine, expected = (summary_of(t) for t in (ours, theirs))
        assert mine.operation == expected.operation == Operation.APPEND
        assert _without_sizes(mine) == _without_sizes(expected)
        sizes = [file.file_size_in_bytes for file in data_files(ours)]
        assert mine["total-files-size"] == str(sum(sizes))


def _without_sizes(summary: object) -> dict[str, str]:
    found = dict(summary.additional_properties)  # type: ignore[attr-defined]
    for key, value in found.items():
        if key.startswith("partitions."):
            found[key] = ",".join(p for p in value.split(",") if "size" not in p)
    return {key: value for key, value in found.items() if "size" not in key}


def test_snapshot_properties_are_in_the_summary(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1), properties={"who": "me", "added-records": "lies"})
    assert summary_of(table)["who"] == "me"
    assert summary_of(table)["added-records"] == "1"


@pytest.mark.parametrize("key", ["operation", "icestream.load-id", "icestream.write-ids"])
def test_properties_that_a_commit_sets_itself_are_refused(catalog: SqlCatalog, key: str) -> None:
    table = make_table(catalog)
    with pytest.raises(ice.InvalidArgumentError, match=key):
        ice.append(table, ids(0, 1), properties={key: "x"})
    assert snapshots_of(table) == []
    assert listing(table) == set()


@pytest.mark.parametrize("properties", [{"a": 1}, {1: "a"}])
def test_properties_that_are_no_strings_are_refused(
    catalog: SqlCatalog, properties: object
) -> None:
    table = make_table(catalog)
    with pytest.raises(ice.InvalidArgumentError, match="are strings"):
        ice.append(table, ids(0, 1), properties=properties)  # type: ignore[arg-type]


def test_a_load_of_many_batches_is_one_manifest(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    many = (piece for n in range(500) for piece in ids(n * 2, n * 2 + 2).to_batches())
    report = ice.append(table, many)
    assert report.rows_inserted == 1000
    assert len(head_of(table).manifests(table.io)) == 1
    assert len(listing(table)) == 1 + report.files_added + 1  # manifest, files, manifest list


def test_manifests_are_cut_at_their_target_size(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART, commit__manifest__target_size_bytes="6000")
    ice.append(table, batch((n, n) for n in range(60)))
    manifests = head_of(table).manifests(table.io)
    assert len(manifests) > 2
    assert sum(m.added_files_count or 0 for m in manifests) == 60
    assert all((m.added_files_count or 0) > 1 for m in manifests[:-1])
    assert rows_of(table) == [(n, n) for n in range(60)]


def test_files_go_under_their_own_spec_when_it_changes_before_the_commit(
    catalog: SqlCatalog,
) -> None:
    """PyIceberg would put them under the new one, and give wrong rows for a filter."""
    table = make_table(catalog, spec=BY_PART)
    files = ice.write_files(table, batch([(1, 10), (2, 20)]))
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_field("id", TruncateTransform(10), "tens")
    more = ice.write_files(table, batch([(33, 10), (34, 20)]))
    ice.commit_files(table, [*files, *more])
    assert len(snapshots_of(table)) == 1
    manifests = head_of(table).manifests(table.io)
    assert sorted(m.partition_spec_id for m in manifests) == [0, 1]
    assert {f.spec_id: len(f.partition) for f in data_files(table)} == {0: 1, 1: 1}
    for where, expected in [
        ("part = 10", [1, 33]),
        ("part = 20", [2, 34]),
        ("id < 10", [1, 2]),
        ("id > 30", [33, 34]),
        ("id = 1 and part = 10", [1]),
    ]:
        found = table.scan(row_filter=where).to_arrow()["id"].to_pylist()
        assert sorted(found) == expected, where


@pytest.mark.parametrize(
    "name",
    [
        "commit.retry.num-retries",
        "commit.retry.min-wait-ms",
        "commit.manifest.target-size-bytes",
        "write.summary.partition-limit",
    ],
)
def test_a_table_property_that_is_no_number_is_named(catalog: SqlCatalog, name: str) -> None:
    table = make_table(catalog)
    with table.transaction() as transaction:
        transaction.set_properties({name: "many"})
    with pytest.raises(ice.InvalidArgumentError, match=f"{name} is 'many'"):
        ice.append(table, ids(0, 1))
    assert listing(table) == set()
