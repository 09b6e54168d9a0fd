"""The files that a table refers to, however a path to them is written."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.upkeep.folder import Folder
from tests.support.stored import folder_of, make_older
from tests.support.strays import DAY, leave_stray, overwritten, rows_of_all_snapshots


def _moved_behind_a_link(table: Table, into: Path) -> Path:
    """Move a data file elsewhere, and leave a symbolic link where the table expects it."""
    path = next((folder_of(table) / "data").glob("*.parquet"))
    into.mkdir(parents=True, exist_ok=True)
    target = into / f"moved-{uuid.uuid4()}.parquet"
    path.rename(target)
    path.symlink_to(target)
    make_older(target, 10 * DAY)
    return target


@pytest.mark.parametrize("hops", [1, 2])
def test_the_target_of_a_data_file_that_is_a_link_is_kept(catalog: SqlCatalog, hops: int) -> None:
    table = overwritten(catalog, "db.t")
    target = _moved_behind_a_link(table, folder_of(table) / "cold")
    if hops == 2:
        further = target.with_name("further.parquet")
        target.rename(further)
        target.symlink_to(further.name)
        target = further
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert target.exists()
    assert len(rows_of_all_snapshots(table)) == 20


def test_the_target_of_a_relative_link_through_parent_folders_is_kept(
    catalog: SqlCatalog,
) -> None:
    table = overwritten(catalog, "db.t")
    path = next((folder_of(table) / "data").glob("*.parquet"))
    target = folder_of(table) / "cold/deep/x.parquet"
    target.parent.mkdir(parents=True)
    path.rename(target)
    path.symlink_to("../data/../cold/./deep/x.parquet")
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert len(rows_of_all_snapshots(table)) == 20


def test_a_link_whose_target_is_referred_to_is_kept(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    path = next((folder_of(table) / "data").glob("*.parquet"))
    link = path.with_name("link.parquet")
    link.symlink_to(path)
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert link.is_symlink()


def test_a_second_name_of_a_referenced_file_is_kept(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    path = next((folder_of(table) / "data").glob("*.parquet"))
    os.link(path, path.with_name("second.parquet"))
    assert ice.orphans(table, older_than=0, delete=True).count == 0


@pytest.mark.parametrize("way", ["{folder}/link/../data", "{folder}/./data/x/..", "{link}/data"])
def test_paths_with_links_and_dots_lead_to_the_same_files(
    catalog: SqlCatalog, tmp_path: Path, way: str
) -> None:
    folder, elsewhere = tmp_path / "warehouse/db/t", tmp_path / "warehouse/db/t/elsewhere/deep"
    elsewhere.mkdir(parents=True)
    (elsewhere.parent / "data").mkdir()
    (folder / "data/x").mkdir(parents=True)
    (folder / "link").symlink_to(elsewhere)
    (tmp_path / "short").symlink_to(folder)
    path = way.format(folder=folder, link=tmp_path / "short")
    table = overwritten(catalog, "db.t", properties={"write.data.path": f"file://{path}"})
    stray = leave_stray(folder / "elsewhere")
    report = ice.orphans(table, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"file://{stray}"]
    assert len(rows_of_all_snapshots(table)) == 20


def test_a_folder_that_became_a_link_since_the_last_search_is_seen(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = overwritten(catalog, "db.t", properties={"write.data.path": f"file://{tmp_path}/fast"})
    assert ice.orphans(table, older_than=0).count == 0
    (tmp_path / "fast").rename(folder_of(table) / "slow")
    (tmp_path / "fast").symlink_to(folder_of(table) / "slow")
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert len(rows_of_all_snapshots(table)) == 20


def test_a_file_in_other_letters_is_not_an_orphan(catalog: SqlCatalog) -> None:
    table = overwritten(catalog, "db.t")
    path = next((folder_of(table) / "data").glob("*.parquet"))
    upper = path.with_name(path.name.upper().replace("-", "%2D"))
    path.rename(upper)  # as a store lists it that spells names in another way
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert upper.exists()


def test_a_file_that_is_another_one_by_now_is_not_deleted(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = overwritten(catalog, "db.t")
    stray = leave_stray(folder_of(table) / "data")
    (found,) = [f for f in Folder(table.io, table.location()).files() if f.name == stray.name]
    stray.unlink()
    stray.write_bytes(b"new")
    assert not found.delete()
    assert stray.read_bytes() == b"new"
