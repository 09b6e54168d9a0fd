"""`append`: one snapshot, the right rows, the right words about them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import pyarrow as pa
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
from tests.support.tables import create_v3_table, data_files


@pytest.mark.parametrize("how", [ice.append, ice.overwrite, ice.write_files])
def test_a_batch_is_let_go_of_before_the_next_one_is_made(
    catalog: SqlCatalog, how: Callable[..., object]
) -> None:
    table = make_table(catalog)
    large = ids(0, 200_000).combine_chunks().to_batches()[0]

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            made = pa.concat_batches([large])
            alive.append(weakref.ref(made))
            yield made
            del made
            assert alive[-1]() is None

    alive: list[weakref.ref[pa.RecordBatch]] = []
    into = ice.write_target(table) if how is ice.write_files else table
    how(into, batches(), memory="16MB")
    assert len(alive) == 4


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


def test_an_empty_stream_makes_no_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    before = listing(table)
    for source in (iter(()), ids(0, 0), [], ids(0, 0).to_reader(), lambda: iter(())):
        report = ice.append(table, source)
        assert report.snapshot_id is None
        assert (report.rows_inserted, report.files_added, report.commit_attempts) == (0, 0, 0)
    assert len(snapshots_of(table)) == 1
    assert listing(table) == before


def test_an_empty_stream_with_a_load_id_is_remembered(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    report = ice.append(table, iter(()), load_id="empty")
    assert report.snapshot_id == head_of(table).snapshot_id
    assert ice.append(table, ids(1, 2), load_id="empty").already_committed
    assert ids_of(table) == [0]


def test_the_table_object_has_the_new_snapshot_afterwards(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    report = ice.append(table, ids(0, 1))
    assert table.metadata.current_snapshot_id == report.snapshot_id


def test_a_stale_table_object_appends_to_the_newest_snapshot(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    stale = make_table(catalog)
    ice.append(other.load_table("db.t"), ids(0, 2))
    ice.append(stale, ids(2, 3))
    assert ids_of(stale) == [0, 1, 2]


def test_a_version_3_table_is_refused_and_nothing_is_left(catalog: SqlCatalog) -> None:
    table = create_v3_table(catalog, "db.three", ids(0, 1).schema)
    before = listing(table)
    for write in (
        lambda: ice.append(table, ids(0, 1)),
        lambda: ice.overwrite(table, ids(0, 1)),
        lambda: ice.delete(table, "id = 1"),
        lambda: ice.write_files(table, ids(0, 1)),
        lambda: ice.write_target(table),
        lambda: ice.append(table.transaction(), ids(0, 1)),
    ):
        with pytest.raises(ice.UnsupportedFeatureError, match="format version 3"):
            write()
    assert listing(table) == before
    assert table.refresh().current_snapshot() is None


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


def test_a_table_that_was_dropped_is_a_catalog_error(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog)
    other.drop_table("db.t")
    with pytest.raises(ice.CatalogError, match=r"db\.t does not exist"):
        ice.append(table, ids(0, 1))


def test_a_table_that_was_dropped_and_made_again_is_a_catalog_error(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog)
    other.drop_table("db.t")
    again = make_table(other)
    with pytest.raises(ice.CatalogError, match="UUID"):
        ice.append(table, ids(0, 1))
    assert snapshots_of(again) == []


@pytest.mark.parametrize("table", ["db.t", None, pa.table({"a": [1]})], ids=str)
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="load_table"):
        ice.append(table, ids(0, 1))  # type: ignore[arg-type]


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
