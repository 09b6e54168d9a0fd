"""Orphans of a table whose folders hold files of other tables: none of them is hurt."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.upkeep.orphan_search import orphan_search
from tests.support.stored import (
    folder_of,
    leave_a_write,
    make_older,
    referenced_files,
    stored_files,
    without_records,
)
from tests.support.strays import (
    DAY,
    SCHEMA,
    leave_stray,
    overwritten,
    rows_of_all_snapshots,
    ten_rows,
)

# A table in the same location -------------------------------------------------------------------


@pytest.mark.parametrize("delete", [True, False])
def test_a_renamed_table_in_the_same_location_is_refused_by_name(
    table: Table, old: Table, delete: bool
) -> None:
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CatalogError, match=r"db\.t_old") as refused:
        ice.orphans(table, older_than=0, delete=delete)
    assert str(old.metadata.table_uuid) in str(refused.value)
    assert "other_tables='keep'" in str(refused.value)
    assert ".metadata.json" in str(refused.value)
    assert stored_files(folder_of(table)) == before
    assert len(rows_of_all_snapshots(old)) == 20


def test_all_that_the_other_table_refers_to_is_kept_on_request(table: Table, old: Table) -> None:
    stray = leave_stray(folder_of(table) / "data")
    report = ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert [file.path for file in report.files] == [f"file://{stray}"]
    assert report.kept_for_others == len(referenced_files(old))
    assert stored_files(folder_of(table)) == referenced_files(table) | referenced_files(old)
    assert len(rows_of_all_snapshots(old)) == len(rows_of_all_snapshots(table)) == 20


def test_another_table_whose_list_of_manifests_was_cut_off_is_not_taken_for_empty(
    table: Table, old: Table
) -> None:
    snapshot = old.current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(without_records(whole))
    with pytest.raises(ice.CatalogError, match=path.name):
        ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    path.write_bytes(whole)
    assert len(rows_of_all_snapshots(old)) == 20


def test_the_other_way_round_the_new_table_is_kept(table: Table, old: Table) -> None:
    with pytest.raises(ice.CatalogError, match=r"db\.t, id"):
        ice.orphans(old, older_than=0, delete=True)
    ice.orphans(old, older_than=0, delete=True, other_tables="keep")
    assert stored_files(folder_of(table)) == referenced_files(table) | referenced_files(old)


def test_the_files_of_a_table_that_is_dropped_are_orphans(
    catalog: SqlCatalog, table: Table, old: Table
) -> None:
    gone = str(old.metadata.table_uuid)
    with pytest.raises(ice.InvalidArgumentError, match=r"db\.t_old.*leave it out"):
        ice.orphans(table, older_than=0, delete=True, dropped=[gone])
    assert len(rows_of_all_snapshots(old)) == 20
    catalog.drop_table("db.t_old")
    with pytest.raises(ice.CatalogError, match=f"not in this catalog, {gone}") as refused:
        ice.orphans(table, older_than=0, delete=True)
    assert f"dropped=['{gone}']" in str(refused.value)
    ice.orphans(table, older_than=0, delete=True, dropped=[gone.upper()])
    assert stored_files(folder_of(table)) == referenced_files(table)
    assert len(rows_of_all_snapshots(table)) == 20


def test_only_the_dropped_one_of_several_tables_goes(
    catalog: SqlCatalog, table: Table, old: Table
) -> None:
    catalog.rename_table("db.t", "db.t_second")
    second = catalog.load_table("db.t_second")
    third = overwritten(catalog, "db.t")
    catalog.drop_table("db.t_old")
    dropped = [str(old.metadata.table_uuid)]
    with pytest.raises(ice.CatalogError, match=r"db\.t_second"):
        ice.orphans(third, older_than=0, delete=True, dropped=dropped)
    ice.orphans(third, older_than=0, delete=True, dropped=dropped, other_tables="keep")
    assert stored_files(folder_of(third)) == referenced_files(third) | referenced_files(second)


def test_compressed_metadata_of_another_table_is_read(table: Table, old: Table) -> None:
    folder = folder_of(table) / "metadata"
    for path in list(folder.glob("*.metadata.json")):
        content = path.read_bytes()
        if str(old.metadata.table_uuid).encode() in content:
            suffix = path.name.removesuffix(".metadata.json")
            name = f"{suffix}.gz.metadata.json" if suffix[4] != "0" else f"{path.name}.gz"
            (folder / name).write_bytes(gzip.compress(content))
            path.unlink()
    left = referenced_files_of(old)
    table.catalog.drop_table(old.name())  # it leads to a file that is gone
    with pytest.raises(ice.CatalogError, match=str(old.metadata.table_uuid)):
        ice.orphans(table, older_than=0, delete=True)
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert left <= stored_files(folder_of(table))


def referenced_files_of(table: Table) -> set[str]:
    """What a table object refers to, without asking its catalog; its metadata files left out."""
    with mock.patch.object(Table, "refresh", lambda table: table):
        return {path for path in referenced_files(table) if not path.endswith(".json")}


def test_what_expiry_deleted_of_the_other_table_is_not_missed(table: Table, old: Table) -> None:
    first = old.snapshots()[0]
    old.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    Path(first.manifest_list.removeprefix("file://")).unlink()
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert referenced_files(old) <= stored_files(folder_of(table))


def test_a_manifest_of_the_other_table_that_cannot_be_read_stops_the_search(
    table: Table, old: Table
) -> None:
    manifest = old.current_snapshot().manifests(old.io)[0].manifest_path  # type: ignore[union-attr]
    Path(manifest.removeprefix("file://")).write_bytes(b"damaged")
    stray = leave_stray(folder_of(table) / "data")
    with pytest.raises(ice.CatalogError, match=Path(manifest).name):
        ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert stray.exists()


def test_storage_of_the_other_table_that_is_not_there_stops_the_search(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = overwritten(catalog, "db.t")
    far = tmp_path / "far"
    other = overwritten(
        catalog, "db.other", properties={"write.data.path": f"{table.location()}/data/of-other"}
    )
    # Its metadata lies in the table's folder; manifests are on a disk that is not mounted.
    copy = folder_of(table) / "metadata/other.metadata.json"
    current = Path(other.metadata_location.removeprefix("file://")).read_text()
    copy.write_text(current.replace(str(folder_of(other) / "metadata"), str(far)))
    catalog.drop_table("db.other")
    with pytest.raises(ice.FileMissingError, match="far"):
        ice.orphans(table, older_than=0, delete=True, other_tables="keep")


# Writes of the other table that are under way ---------------------------------------------------


def test_a_write_of_the_other_table_in_the_same_folder_is_not_ours(
    table: Table, old: Table
) -> None:
    _, files, marker = leave_a_write(old, age_seconds=10 * DAY)
    _, ours, our_marker = leave_a_write(table, age_seconds=10 * DAY)
    report = ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert {file.path for file in report.files} == {f"file://{p}" for p in [*ours, our_marker]}
    assert all(path.exists() for path in [*files, marker])


def test_a_marker_that_was_cut_off_may_be_the_other_tables(table: Table, old: Table) -> None:
    _, files, marker = leave_a_write(old)
    marker.write_text("")
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert all(path.exists() for path in [*files, marker])


def test_files_that_the_other_table_has_not_committed_yet_can_be_committed_after(
    table: Table, old: Table
) -> None:
    files = ice.write_files(old, ten_rows(500))
    for file in files:
        make_older(Path(file.path.removeprefix("file://")), 10 * DAY)
    with mock.patch("icestream.operations.upkeep.markers._runs_here", return_value=False):
        ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    ice.commit_files(old, files)
    assert len(rows_of_all_snapshots(old)) == 40


def test_a_dead_write_of_a_dropped_table_goes_with_it(
    catalog: SqlCatalog, table: Table, old: Table
) -> None:
    leave_a_write(old)
    catalog.drop_table("db.t_old")
    dropped = [str(old.metadata.table_uuid)]
    ice.orphans(table, older_than=0, delete=True, dropped=dropped)
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_a_table_made_during_the_search_is_seen_before_anything_is_deleted(
    catalog: SqlCatalog,
) -> None:
    table = overwritten(catalog, "db.t")
    stray = leave_stray(folder_of(table) / "data", "to-be-added.parquet")
    real = orphan_search.OrphanSearch._ask_the_catalog

    def ask(search: orphan_search.OrphanSearch) -> None:
        real(search)
        catalog.create_table("db.late", SCHEMA, location=table.location())

    with (
        mock.patch.object(orphan_search.OrphanSearch, "_ask_the_catalog", ask),
        pytest.raises(ice.CatalogError, match=r"db\.late"),
    ):
        ice.orphans(table, older_than=0, delete=True)
    assert stray.exists()


# Tables below the location, or that write into it -----------------------------------------------


def test_tables_below_the_location_are_refused_or_left_alone(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    inner = overwritten(catalog, "db.inner", location=f"{table.location()}/inner")
    stray = leave_stray(folder_of(inner) / "data")
    before = stored_files(folder_of(inner))
    with pytest.raises(ice.CatalogError, match=r"db\.inner"):
        ice.orphans(table, older_than=0, delete=True)
    report = ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert report.count == 0
    assert report.nested_tables == (str(folder_of(inner)),)
    assert stored_files(folder_of(inner)) == before
    assert [file.path for file in ice.orphans(inner).files] == [f"file://{stray}"]


@pytest.mark.parametrize("path", ["data", "data/deep", "elsewhere"])
def test_a_table_whose_data_is_written_into_this_one_is_seen_by_the_catalog(
    catalog: SqlCatalog, path: str
) -> None:
    table = overwritten(catalog, "db.t")
    properties = {"write.data.path": f"{table.location()}/{path}"}
    other = overwritten(catalog, "db.other", properties=properties)
    _, unfinished, _ = leave_a_write(
        other, folder=folder_of(table) / path, metadata_folder=folder_of(other) / "metadata"
    )
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CatalogError, match=r"db\.other"):
        ice.orphans(table, older_than=0, delete=True)
    stray = leave_stray(folder_of(table) / "data")
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert stored_files(folder_of(table)) == before
    assert not stray.exists()
    assert all(file.exists() for file in unfinished)
    assert len(rows_of_all_snapshots(other)) == 20


def test_a_table_whose_metadata_is_written_into_this_one_is_seen(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    properties = {"write.metadata.path": f"{table.location()}/metadata"}
    other = overwritten(catalog, "db.other", properties=properties)
    catalog.drop_table("db.other")
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CatalogError, match=str(other.metadata.table_uuid)):
        ice.orphans(table, older_than=0, delete=True)
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert stored_files(folder_of(table)) == before


@pytest.mark.parametrize("folder", ["metadata", "other/metadata", "."])
@pytest.mark.parametrize("content", [b"", b'{"format-version": 2, "table-', b"[]", b"\x1f\x8b\x00"])
def test_metadata_that_cannot_be_read_stops_the_search(
    catalog: SqlCatalog, folder: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icestream.operations.upkeep.orphan_search.other_tables._WAIT_SECONDS", 0)
    table = overwritten(catalog, "db.t")
    stray = leave_stray(folder_of(table) / "data")
    broken = leave_stray(folder_of(table) / folder, "metadata.json")
    broken.write_bytes(content)
    for mode in ("refuse", "keep"):
        with pytest.raises(ice.CatalogError, match=r"metadata\.json can't be read"):
            ice.orphans(table, older_than=0, delete=True, other_tables=mode)  # type: ignore[arg-type]
    assert stray.exists()
    assert broken.exists()


def test_metadata_that_is_being_written_can_be_read_a_moment_later(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog, "db.t")
    half = folder_of(table) / "metadata/00009-x.metadata.json"
    half.write_bytes(b"")
    current = Path(table.metadata_location.removeprefix("file://"))

    def sleep(_: float) -> None:
        half.write_bytes(current.read_bytes())

    monkeypatch.setattr("icestream.operations.upkeep.orphan_search.other_tables.time.sleep", sleep)
    assert ice.orphans(table, older_than=0, delete=True).count == 0


@pytest.mark.parametrize("log", ["_delta_log/00000.json", ".hoodie/hoodie.properties"])
def test_a_table_of_another_format_in_the_same_folder_is_refused(
    catalog: SqlCatalog, log: str
) -> None:
    table = overwritten(catalog, "db.t")
    data = leave_stray(folder_of(table), "part-0.parquet")
    leave_stray((folder_of(table) / log).parent, Path(log).name)
    for mode in ("refuse", "keep"):
        with pytest.raises(ice.CatalogError, match=r"may hold a .* table"):
            ice.orphans(table, older_than=0, delete=True, other_tables=mode)  # type: ignore[arg-type]
    assert data.exists()


def test_a_table_of_another_format_below_the_location_is_left_alone(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    data = leave_stray(folder_of(table) / "delta", "part-0.parquet")
    leave_stray(folder_of(table) / "delta/_delta_log", "00000.json")
    with pytest.raises(ice.CatalogError, match=r"Delta Lake.*other_tables='keep'"):
        ice.orphans(table, older_than=0, delete=True)
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert data.exists()


def test_a_table_without_a_catalog_is_known_by_its_numbered_metadata(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    other = overwritten(catalog, "db.other", location=f"{table.location()}/hadoop")
    current = Path(other.metadata_location.removeprefix("file://"))
    catalog.drop_table("db.other")
    for path in current.parent.glob("*.metadata.json"):
        path.rename(path.with_name(f"v{int(path.name[:5]) + 1}.metadata.json"))
    hint = leave_stray(current.parent, "version-hint.text")
    before = stored_files(folder_of(other))
    with pytest.raises(ice.CatalogError, match=r"v\d\.metadata\.json"):
        ice.orphans(table, older_than=0, delete=True)
    ice.orphans(table, older_than=0, delete=True, other_tables="keep")
    assert stored_files(folder_of(other)) == before
    gone = [str(other.metadata.table_uuid)]
    ice.orphans(table, older_than=0, delete=True, dropped=gone)
    assert stored_files(folder_of(table)) == referenced_files(table) | {str(hint)}


def test_the_same_table_under_two_names_of_a_catalog_is_kept_in_any_case(
    catalog: SqlCatalog,
) -> None:
    here = overwritten(catalog, "db.t")
    there = catalog.register_table("db.second_name", here.metadata_location)
    ice.append(there, ten_rows(1000))
    stray = leave_stray(folder_of(here) / "data")
    ice.orphans(here, older_than=0, delete=True, only_catalog=True)
    assert not stray.exists()
    assert len(rows_of_all_snapshots(there)) == 40


def test_a_copy_of_the_table_in_its_own_folder_is_left_alone(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    copy = folder_of(table) / "backup"
    shutil.copytree(folder_of(table), folder_of(table).with_name("copy"))
    folder_of(table).with_name("copy").rename(copy)
    before = stored_files(copy)
    stray = leave_stray(folder_of(table) / "data")
    report = ice.orphans(table, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"file://{stray}"]
    assert stored_files(copy) == before
    head = copy / "metadata" / Path(table.metadata_location).name
    restored = catalog.register_table("db.restored", f"file://{head}")
    ice.append(restored, ten_rows(1000))
    ice.orphans(table, older_than=0, delete=True)
    assert len(rows_of_all_snapshots(restored)) == 40


def _far(tmp_path: Path) -> dict[str, str]:
    return {"write.metadata.path": f"file://{tmp_path}/far"}


def test_a_table_in_the_same_location_is_refused_where_metadata_lies_elsewhere(
    catalog: SqlCatalog, second_catalog: SqlCatalog, tmp_path: Path
) -> None:
    here = overwritten(catalog, "db.t", properties=_far(tmp_path))
    there = overwritten(second_catalog, "db.t", properties=_far(tmp_path))
    assert here.location() == there.location()
    _, files, marker = leave_a_write(there, metadata_folder=tmp_path / "far")
    with pytest.raises(ice.CatalogError, match=str(there.metadata.table_uuid)):
        ice.orphans(here, older_than=0, delete=True)
    ice.orphans(here, older_than=0, delete=True, other_tables="keep")
    assert len(rows_of_all_snapshots(there)) == 20
    assert all(path.exists() for path in [*files, marker])


def test_tables_that_share_a_metadata_folder_only_are_no_matter(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    here = overwritten(catalog, "db.t", properties=_far(tmp_path))
    other = overwritten(catalog, "db.other", properties=_far(tmp_path))
    _, files, marker = leave_a_write(
        here, metadata_folder=tmp_path / "far", table_uuid=str(other.metadata.table_uuid)
    )
    stray = leave_stray(folder_of(here) / "data")
    report = ice.orphans(here, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"file://{stray}"]
    assert all(path.exists() for path in [*files, marker])
    assert len(rows_of_all_snapshots(other)) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"other_tables": "delete"}, "other_tables"),
        ({"dropped": "abc"}, "dropped"),
        ({"dropped": ["abc"]}, "not a table's id"),
        ({"only_catalog": "yes"}, "only_catalog"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    catalog: SqlCatalog, options: dict[str, object], message: str
) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.orphans(table, **options)  # type: ignore[arg-type]


def test_the_table_itself_is_not_dropped(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    with pytest.raises(ice.InvalidArgumentError, match="only_catalog=True"):
        ice.orphans(table, dropped=[str(table.metadata.table_uuid)])
