"""The versions of a table: files of the same table in other catalogs, and of lost commits."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.stored import folder_of, make_older, referenced_files, stored_files
from tests.support.strays import DAY, leave_stray, overwritten, rows_of_all_snapshots, ten_rows


def test_a_table_that_went_on_in_another_catalog_is_kept(
    catalog: SqlCatalog, second_catalog: SqlCatalog
) -> None:
    here = overwritten(catalog, "db.t")
    there = second_catalog.register_table("db.t", here.metadata_location)
    for number in range(3):
        ice.append(there, ten_rows(1000 * number))
    stray = leave_stray(folder_of(here) / "data")
    report = ice.orphans(here, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"file://{stray}"]
    assert report.copies == 3
    assert len(rows_of_all_snapshots(there)) == 20 + 20 + 30 + 40
    ice.append(here, ten_rows(5000))
    ice.orphans(here, older_than=0, delete=True)
    ice.orphans(there, older_than=0, delete=True)
    assert len(rows_of_all_snapshots(there)) == 110
    assert len(rows_of_all_snapshots(here)) == 40


def test_a_single_commit_in_another_catalog_is_kept(
    catalog: SqlCatalog, second_catalog: SqlCatalog
) -> None:
    here = overwritten(catalog, "db.t")
    there = second_catalog.register_table("db.t", here.metadata_location)
    with there.transaction() as transaction:
        transaction.set_properties(owner="there")
    ice.append(here, ten_rows(5000))
    ice.orphans(here, older_than=0, delete=True)
    assert second_catalog.load_table("db.t").properties["owner"] == "there"
    assert len(rows_of_all_snapshots(there)) == 20


def test_where_there_is_no_other_catalog_its_files_are_orphans(
    catalog: SqlCatalog, second_catalog: SqlCatalog
) -> None:
    here = overwritten(catalog, "db.t")
    there = second_catalog.register_table("db.t", here.metadata_location)
    ice.append(there, ten_rows(1000))
    second_catalog.drop_table("db.t")
    ice.orphans(here, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(here)) == referenced_files(here)


def _send_and_lose(table: Table, *, cleaned: bool) -> Path:
    """A metadata file of a commit that another one was faster than."""
    rival = table.catalog.load_table(table.name())
    ice.append(rival, ten_rows(700))
    metadata = json.loads(Path(rival.metadata_location.removeprefix("file://")).read_text())
    lost = Path(rival.metadata_location.removeprefix("file://")).with_name(
        f"00003-{uuid.uuid4()}.metadata.json"
    )
    source = Path(rival.current_snapshot().manifest_list.removeprefix("file://"))  # type: ignore[union-attr]
    manifest_list = source.with_name(f"snap-1-0-{uuid.uuid4()}.avro")
    shutil.copy(source, manifest_list)
    metadata["snapshots"][-1]["manifest-list"] = f"file://{manifest_list}"
    lost.write_text(json.dumps(metadata))
    if cleaned:
        manifest_list.unlink()
    for path in (lost, manifest_list):
        if path.exists():
            make_older(path, 4 * DAY)
    return lost


def test_metadata_of_a_lost_commit_that_was_cleaned_up_is_an_orphan(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    lost = _send_and_lose(table, cleaned=True)
    report = ice.orphans(table, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"file://{lost}"]
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_metadata_of_a_commit_that_may_be_another_catalogs_is_kept(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    lost = _send_and_lose(table, cleaned=False)
    report = ice.orphans(table, older_than=0, delete=True)
    assert (report.count, report.copies, report.kept_for_others) == (0, 1, 2)
    assert lost.exists()
    ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_half_a_metadata_file_of_a_killed_commit_is_an_orphan_if_asked_for(
    catalog: SqlCatalog,
) -> None:
    table = overwritten(catalog, "db.t")
    (folder_of(table) / "metadata/00004-x.metadata.json").write_bytes(b'{"location": "file:')
    ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_a_catalog_restored_from_a_backup_does_not_cost_what_came_after(
    catalog: SqlCatalog,
) -> None:
    table = overwritten(catalog, "db.t")
    earlier = table.metadata_location
    ice.append(table, ten_rows(1000))
    ice.append(table, ten_rows(2000))
    latest = table.metadata_location
    catalog.drop_table("db.t")
    restored = catalog.register_table("db.t", earlier)
    ice.orphans(restored, older_than=0, delete=True)
    catalog.drop_table("db.t")
    again = catalog.register_table("db.t", latest)
    assert len(rows_of_all_snapshots(again)) == 20 + 20 + 30


def _far(tmp_path: Path) -> dict[str, str]:
    return {"write.metadata.path": f"file://{tmp_path}/far"}


def test_a_version_of_another_catalog_is_kept_where_metadata_lies_elsewhere(
    catalog: SqlCatalog, second_catalog: SqlCatalog, tmp_path: Path
) -> None:
    here = overwritten(catalog, "db.t", properties=_far(tmp_path))
    there = second_catalog.register_table("db.t", here.metadata_location)
    for number in range(3):
        ice.append(there, ten_rows(1000 * number))
    # The folder where this catalog's metadata goes from now on is another one.
    with here.transaction() as transaction:
        transaction.remove_properties("write.metadata.path")
    report = ice.orphans(here, older_than=0, delete=True)
    assert (report.count, report.copies) == (0, 3)
    assert len(rows_of_all_snapshots(there)) == 20 + 20 + 30 + 40
