"""Orphans: what nothing refers to is found, and nothing else."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetLocationUpdate, SetPartitionStatisticsUpdate

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.stored import folder_of, make_older, referenced_files, stored_files
from tests.support.tables import data_file_paths

DAY = 24 * 60 * 60
_SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def _rows(first: int, count: int = 10) -> pa.Table:
    days = [f"d{n % 2}" for n in range(count)]
    return pa.table({"id": range(first, first + count), "day": days}, schema=_SCHEMA)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Two appends, rows deleted by position, a branch and a tag."""
    table = catalog.create_table("db.t", _SCHEMA)
    ice.append(table, _rows(0))
    ice.append(table, _rows(10))
    first = table.snapshots()[0].snapshot_id
    with table.manage_snapshots() as snapshots:
        snapshots.create_branch(first, "side").create_tag(first, "then")
    commit_position_deletes(table, {data_file_paths(table)[0]: [3]})
    return table.refresh()


def _stray(table: Table, relative: str, *, age_seconds: float = 4 * DAY) -> Path:
    path = folder_of(table) / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"stray")
    make_older(path, age_seconds)
    return path


def _paths(report: ice.OrphansReport) -> list[str]:
    return sorted(file.path.removeprefix("file://") for file in report.files)


def test_a_table_without_strays_has_no_orphans(table: Table) -> None:
    before = stored_files(folder_of(table))
    report = ice.orphans(table, older_than=0, delete=True)
    assert (report.count, report.files_deleted, report.files) == (0, 0, ())
    assert stored_files(folder_of(table)) == before == referenced_files(table)
    assert report.files_listed == report.files_referenced == len(before)


def test_strays_in_data_and_metadata_are_found_and_not_deleted_unasked(table: Table) -> None:
    strays = [
        _stray(table, "data/x.parquet"),
        _stray(table, "data/day=d0/y.parquet"),
        _stray(table, "metadata/z-m0.avro"),
        _stray(table, "elsewhere/file"),
    ]
    report = ice.orphans(table)
    assert _paths(report) == sorted(map(str, strays))
    assert report.bytes == 20
    assert {file.reason for file in report.files} == {"unreferenced"}
    assert report.files_deleted == 0
    assert all(path.exists() for path in strays)


def test_deleting_leaves_exactly_what_the_table_refers_to(table: Table) -> None:
    _stray(table, "data/x.parquet")
    _stray(table, "metadata/z-m0.avro")
    report = ice.orphans(table, delete=True)
    assert (report.files_deleted, report.bytes_deleted, report.not_deleted) == (2, 10, ())
    assert stored_files(folder_of(table)) == referenced_files(table)
    assert table.scan().to_arrow().num_rows == 19


def test_strays_younger_than_three_days_are_kept(table: Table) -> None:
    young = _stray(table, "data/x.parquet", age_seconds=2.9 * DAY)
    report = ice.orphans(table, delete=True)
    assert (report.count, report.kept_young) == (0, 1)
    assert young.exists()


@pytest.mark.parametrize(
    ("older_than", "count"),
    [
        (timedelta(hours=1), 1),
        (3600, 1),
        (3 * 3600.0, 0),
        (datetime.now(UTC) - timedelta(hours=1), 1),
        ((datetime.now(UTC) - timedelta(hours=1)).replace(tzinfo=None), 1),
        (datetime.now(UTC) - timedelta(hours=3), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_older_than_is_a_duration_or_seconds_or_a_moment(
    table: Table, older_than: timedelta | float | datetime, count: int
) -> None:
    _stray(table, "data/x.parquet", age_seconds=2 * 3600)
    assert ice.orphans(table, older_than=older_than).count == count


@pytest.mark.parametrize(
    "older_than", [-1, timedelta(seconds=-1), "3 days", None, True, float("nan"), float("inf")]
)
def test_an_age_that_is_none_is_refused(table: Table, older_than: object) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="older_than"):
        ice.orphans(table, older_than=older_than)  # type: ignore[arg-type]


def test_a_moment_in_the_future_is_refused(table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="future"):
        ice.orphans(table, older_than=datetime.now(UTC) + timedelta(hours=1))


def test_something_that_is_no_table_is_refused() -> None:
    with pytest.raises(ice.InvalidArgumentError, match="PyIceberg Table"):
        ice.orphans(7)  # type: ignore[arg-type]


def test_a_dropped_table_is_an_error(catalog: SqlCatalog, table: Table) -> None:
    catalog.drop_table("db.t")
    with pytest.raises(ice.CatalogError, match=r"db\.t"):
        ice.orphans(table, older_than=0, delete=True)
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.t")


def test_files_of_expired_snapshots_become_orphans(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.expired", _SCHEMA)
    ice.append(table, _rows(0))
    ice.overwrite(table, _rows(10))
    table.refresh()
    old = table.snapshots()[0]
    assert ice.orphans(table, older_than=0).count == 0
    table.maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    report = ice.orphans(table, older_than=0, delete=True)
    names = sorted(Path(file.path).suffix for file in report.files)
    assert names == [".avro", ".avro", ".parquet"]
    assert table.scan().to_arrow().num_rows == 10
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_statistics_files_are_kept(table: Table) -> None:
    statistics = _stray(table, "metadata/theta.stats")
    by_partition = _stray(table, "metadata/partition-stats.parquet")
    snapshot_id = table.current_snapshot().snapshot_id
    with table.update_statistics() as update:
        update.set_statistics(
            StatisticsFile(
                snapshot_id=snapshot_id,
                statistics_path=f"file://{statistics}",
                file_size_in_bytes=5,
                file_footer_size_in_bytes=1,
                blob_metadata=[],
            )
        )
    with table.transaction() as transaction:
        partitions = PartitionStatisticsFile(
            snapshot_id=snapshot_id,
            statistics_path=f"file:{by_partition}",
            file_size_in_bytes=5,
        )
        transaction._apply((SetPartitionStatisticsUpdate(partition_statistics=partitions),))
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert statistics.exists()
    assert by_partition.exists()


def test_version_hints_and_the_metadata_log_are_kept(table: Table) -> None:
    hint = _stray(table, "metadata/version-hint.text")
    logged = [Path(e.metadata_file.removeprefix("file://")) for e in table.metadata.metadata_log]
    ice.orphans(table, older_than=0, delete=True)
    assert hint.exists()
    assert logged
    assert all(path.exists() for path in logged)


def test_metadata_that_fell_out_of_the_log_is_an_orphan(catalog: SqlCatalog) -> None:
    properties = {"write.metadata.previous-versions-max": "2"}
    table = catalog.create_table("db.log", _SCHEMA, properties=properties)
    for n in range(5):
        ice.append(table, _rows(n))
    report = ice.orphans(table, older_than=0, delete=True)
    assert [Path(p).name[:5] for p in _paths(report)] == ["00000", "00001", "00002"]
    assert catalog.load_table("db.log").scan().to_arrow().num_rows == 50


def test_hidden_files_are_left_alone_but_not_hidden_partitions(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.hidden", pa.schema([("_p", pa.string())]))
    with table.update_spec() as update:
        update.add_identity("_p")
    ice.append(table, pa.table({"_p": ["a"]}))
    kept = [_stray(table, "_checkpoint/offsets/1"), _stray(table, "data/.x.parquet.crc")]
    stray = _stray(table, "data/_p=a/x.parquet")
    report = ice.orphans(table, older_than=0, delete=True)
    assert _paths(report) == [str(stray)]
    assert all(path.exists() for path in kept)


def test_symbolic_links_are_neither_followed_nor_deleted(table: Table, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.parquet").write_bytes(b"precious")
    (folder_of(table) / "data/link").symlink_to(outside)
    (folder_of(table) / "data/link.parquet").symlink_to(outside / "precious.parquet")
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert (outside / "precious.parquet").exists()
    assert (folder_of(table) / "data/link.parquet").is_symlink()


@pytest.mark.parametrize("written", ["{path}", "file:{path}", "file:///{path}", "linked"])
def test_a_location_may_be_written_in_any_way(
    catalog: SqlCatalog, tmp_path: Path, written: str
) -> None:
    folder = tmp_path / "tables/t"
    folder.mkdir(parents=True)
    if written == "linked":
        (tmp_path / "link").symlink_to(tmp_path / "tables")
        location = f"file://{tmp_path}/link/t"
    else:
        location = written.format(path=folder)
    table = catalog.create_table("db.t", _SCHEMA, location=location)
    ice.append(table, _rows(0))
    # The same table, found again under its plain name.
    with table.transaction() as transaction:
        transaction._apply((SetLocationUpdate(location=f"file://{folder}"),))
    ice.append(table, _rows(10))
    stray = folder / "data/x.parquet"
    stray.write_bytes(b"stray")
    report = ice.orphans(table, older_than=0, delete=True)
    assert _paths(report) == [str(stray)]
    assert table.refresh().scan().to_arrow().num_rows == 20


def test_nothing_is_called_an_orphan_when_no_path_can_be_matched(table: Table) -> None:
    metadata = Path(table.metadata_location.removeprefix("file://"))
    other = folder_of(table).parent / "moved"
    folder_of(table).rename(other)
    moved = json.loads((other / "metadata" / metadata.name).read_text())
    moved["location"] = f"file://{other}"
    # The folder was moved, and the metadata in it still names the old places.
    folder_of(table).joinpath("metadata").mkdir(parents=True)
    metadata.write_text(json.dumps(moved))
    for path in (other / "metadata").glob("*.avro"):
        os.link(path, metadata.parent / path.name)
    with pytest.raises(ice.CatalogError, match="refers to none of the"):
        ice.orphans(table, older_than=0, delete=True)
    assert len(list((other / "data").iterdir())) == 3


def test_a_missing_manifest_stops_the_search(table: Table) -> None:
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).unlink()
    stray = _stray(table, "data/x.parquet")
    with pytest.raises(ice.FileMissingError, match="does not exist"):
        ice.orphans(table, older_than=0, delete=True)
    assert stray.exists()


def test_data_and_metadata_elsewhere_are_not_taken_for_orphans(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    properties = {
        "write.data.path": f"file://{tmp_path}/far/data",
        "write.metadata.path": f"file://{tmp_path}/far/metadata",
        "write.object-storage.enabled": "true",
    }
    table = catalog.create_table("db.far", _SCHEMA, properties=properties)
    ice.append(table, _rows(0))
    stray = tmp_path / "far/data/x.parquet"
    stray.write_bytes(b"of this table, or of another one")
    assert ice.orphans(table, older_than=0, delete=True).count == 0
    assert stray.exists()
    report = ice.orphans(table, older_than=0, delete=True, folders=[f"file://{tmp_path}/far"])
    assert _paths(report) == [str(stray)]
    assert table.scan().to_arrow().num_rows == 10


def test_files_that_cannot_be_deleted_are_reported(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = _stray(table, "data/x.parquet")
    gone = _stray(table, "data/y.parquet")
    from icestream.operations.upkeep.folder import StoredFile

    real = StoredFile.delete
    monkeypatch.setattr(StoredFile, "delete", lambda f: f.name != "x.parquet" and real(f))
    report = ice.orphans(table, delete=True)
    assert (report.count, report.files_deleted) == (2, 1)
    assert report.not_deleted == (f"file://{stuck}",)
    assert not gone.exists()


def test_the_report_is_plain_data(table: Table) -> None:
    _stray(table, "data/x.parquet")
    report = json.loads(json.dumps(ice.orphans(table).to_dict()))
    assert report["count"] == 1
    assert report["files"][0]["reason"] == "unreferenced"
