"""Credentials that a catalog vends and a store stops to accept: the work goes on with new ones."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO

import icestream as ice
from icestream.catalogs.credentials import expiry_seconds, table_access
from icestream.commit.in_flight import InFlightWrite
from icestream.operations.upkeep.folder import Folder, delete_stored
from icestream.operations.upkeep.orphans import delete_write
from icestream.pipeline.inputs.load_input import TablePoint
from icestream.pipeline.inputs.table_increment import scan_point
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.read.decode.files import FileStream, RetryPolicy
from icestream.read.plan import manifests
from tests.support.s3 import LatencyProxy, s3_server
from tests.support.vending import Vending, vending_catalog

pytestmark = pytest.mark.timeout(120)
_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
_ROWS = 4_000


@pytest.fixture(scope="module")
def store() -> Iterator[LatencyProxy]:
    with s3_server() as url, LatencyProxy(url) as proxy:
        yield proxy


@pytest.fixture
def vending(
    request: pytest.FixtureRequest, store: LatencyProxy, tmp_path: Path
) -> Iterator[Vending]:
    alone = getattr(request, "param", False)
    with vending_catalog(tmp_path, store, alone=alone) as made:
        table = made.server.backend.create_table("db.t", _SCHEMA)
        for start in (0, _ROWS // 2):
            ice.append(table, _rows(start, _ROWS // 2))
        yield made


def _rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": list(ids), "text": [f"{i:0100d}" for i in ids]}, schema=_SCHEMA)


def _ids(scan: ice.Scan) -> list[int]:
    return sorted(i for batch in scan for i in batch["id"].to_pylist())


@pytest.mark.parametrize(
    ("vending", "order"),
    [(False, ice.TaskOrder()), (True, ice.ArrivalOrder(concurrent_streams=3))],
    ids=["with the table", "alone"],
    indirect=["vending"],
)
def test_a_scan_goes_on_with_new_credentials(vending: Vending, order: object) -> None:
    table = vending.table()
    splits = ice.scan(table).splits()
    before = vending.vended
    vending.store.expire_after(4)
    scan = ice.read_splits(splits, order=order, batch_size=300)  # type: ignore[arg-type]
    assert _ids(scan) == list(range(_ROWS))
    assert vending.vended > before
    vending.store.expire_after(None)
    after = vending.vended
    assert _ids(ice.scan(table)) == list(range(_ROWS))
    assert vending.vended == after, "the next scan begins with the new ones"


def test_planning_goes_on_with_new_credentials(vending: Vending) -> None:
    table = vending.table()
    before = vending.vended
    vending.store.expire_after(4)
    assert len(ice.scan(table).splits()) == 2
    assert vending.vended > before


def test_what_was_appended_is_planned_with_new_credentials(vending: Vending) -> None:
    table = vending.table()
    point = TablePoint(table, table.metadata.current_snapshot_id, is_increment=True)
    before = vending.vended
    vending.store.expire_after(4)
    appended = scan_point(SourceSpec("table", table=table), point, memory=1 << 26)
    assert appended is not None
    assert len(appended.splits()) == 2
    assert vending.vended > before


def test_a_load_and_its_commit_go_on_with_new_credentials(vending: Vending) -> None:
    table = vending.table()
    vending.store.expire_after(12)
    batches = [_rows(_ROWS + i * 500, 500) for i in range(4)]
    report = ice.append(table, lambda: iter(batches))
    assert report.rows_inserted == 2_000
    vending.store.expire_after(None)
    assert _ids(ice.scan(vending.table())) == list(range(_ROWS + 2_000))


def test_credentials_that_expire_soon_are_renewed_before_a_file_is_begun(
    vending: Vending,
) -> None:
    vending.expires_in_seconds = 100.0
    table = vending.table()
    target = ice.write_target(table)
    before, expiry = vending.vended, expiry_seconds(target.io)
    assert expiry is not None
    ice.write_files(target, _rows(0, 10))
    assert vending.vended > before
    assert (expiry_seconds(target.io) or 0) > expiry


def test_a_worker_without_a_catalog_says_that_credentials_have_expired(vending: Vending) -> None:
    splits = pickle.loads(pickle.dumps(ice.scan(vending.table()).splits()))
    target = pickle.loads(pickle.dumps(ice.write_target(vending.table())))
    assert vending.server.uri not in str(splits[0].context.io.properties)
    vending.store.expire_after(0)
    with pytest.raises(ice.CredentialsExpiredError, match="this process has no catalog") as caught:
        list(ice.read_splits(splits))
    assert caught.value.path in {split.path for split in splits}
    with pytest.raises(ice.CredentialsExpiredError, match="have expired"):
        ice.write_files(target, _rows(0, 10))
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.path) == (str(caught.value), caught.value.path)


def test_a_catalog_that_vends_no_others_is_named(vending: Vending) -> None:
    table = vending.table()
    same = vending.vend()
    vending.server.vended = lambda: same
    table.refresh()
    splits = ice.scan(table).splits()
    vending.store.expire_after(0)
    with pytest.raises(ice.CredentialsExpiredError, match="the catalog has no newer ones"):
        list(ice.read_splits(splits))


def test_keys_that_are_refused_for_another_reason_are_not_called_expired(vending: Vending) -> None:
    splits = pickle.loads(pickle.dumps(ice.scan(vending.table()).splits()))
    vending.store.fail_next(20, 403, methods=("GET", "HEAD"), path_contains=".parquet")
    with pytest.raises(ice.ReadError):
        list(ice.read_splits(splits, retries=0))


def _leave_strays(vending: Vending, count: int) -> list[str]:
    table = vending.server.backend.load_table("db.t")
    paths = [f"{table.location()}/data/stray-{number}.parquet" for number in range(count)]
    for path in paths:
        with table.io.new_output(path).create() as stream:
            stream.write(b"stray")
    return paths


# Deleting a file takes three requests, and three files are deleted at once.
@pytest.mark.parametrize("life", [9, 10, 11])
def test_orphans_are_found_and_deleted_with_new_credentials(vending: Vending, life: int) -> None:
    strays = _leave_strays(vending, 3)
    table = vending.table()
    before = vending.vended
    vending.store.expire_after(life)
    report = ice.orphans(table, older_than=0, delete=True)
    assert {file.path for file in report.files} >= set(strays)
    assert (report.not_deleted, report.files_deleted) == ((), report.count)
    assert vending.vended > before
    vending.store.expire_after(None)
    assert ice.orphans(vending.table(), older_than=0).count == 0
    assert _ids(ice.scan(vending.table())) == list(range(_ROWS))


def _expire(vending: Vending, io: FileIO, path: str) -> None:
    """Use up the keys of some file access; others last for ten requests."""
    vending.store.expire_after(10)
    for _ in range(20):
        with suppress(OSError):
            io.new_input(path).open().close()
    with pytest.raises(OSError, match="HTTP status 400"):
        io.new_input(path).open()


@pytest.mark.parametrize("vending", [False, True], ids=["with the table", "alone"], indirect=True)
def test_a_folder_is_listed_and_its_files_deleted_with_new_credentials(vending: Vending) -> None:
    strays = _leave_strays(vending, 3)
    io = table_access(vending.table())
    folder = Folder(io, strays[0].rpartition("/")[0])
    _expire(vending, io, strays[0])
    listed = {file.path: file for file in folder.files()}
    assert set(strays) <= set(listed)
    _expire(vending, io, strays[0])
    assert listed[strays[0]].read(most_bytes=10) == b"stray"
    _expire(vending, io, strays[0])
    assert delete_stored([listed[path] for path in strays]) == []
    vending.store.expire_after(None)
    assert not set(strays) & {file.path for file in folder.files()}


def test_a_folder_that_cannot_be_listed_for_want_of_credentials_says_so(vending: Vending) -> None:
    (stray,) = _leave_strays(vending, 1)
    folder = Folder(pickle.loads(pickle.dumps(table_access(vending.table()))), stray[:-10])
    vending.store.expire_after(0)
    with pytest.raises(ice.CredentialsExpiredError, match="this process has no catalog"):
        list(folder.files())


def test_a_file_is_read_on_with_new_credentials_from_where_it_was(vending: Vending) -> None:
    (stray,) = _leave_strays(vending, 1)
    io = table_access(vending.table())
    with closing(FileStream(io, stray, RetryPolicy(wait_seconds=0))) as stream:
        assert stream.read(2) == b"st"
        _expire(vending, io, stray)
        assert stream.read(10) == b"ray"


@pytest.mark.parametrize("ahead_bytes", [4 << 20, 0], ids=["read ahead", "streamed"])
def test_health_is_told_with_new_credentials(
    vending: Vending, monkeypatch: pytest.MonkeyPatch, ahead_bytes: int
) -> None:
    monkeypatch.setattr(manifests, "_AHEAD_BYTES", ahead_bytes)
    InFlightWrite(ice.write_target(vending.table()), operation="append").mark()
    table = vending.table()
    for life in (3, 4, 5, 6):
        before = vending.vended
        vending.store.expire_after(life)
        report = ice.health(table)
        assert (report.rows, report.writes_in_flight) == (_ROWS, 1)
        assert vending.vended > before + 1, "more than what looking at the table takes"


def test_the_files_of_a_failed_write_are_deleted_with_new_credentials(vending: Vending) -> None:
    target = ice.write_target(vending.table())
    InFlightWrite(target, operation="append").mark()
    (written,) = ice.write_files(target, _rows(_ROWS, 10))
    _expire(vending, target.io, written.path)
    delete_write(target)
    vending.store.expire_after(None)
    listed = [file.name for file in Folder(target.io, target.metadata.location).files()]
    assert not [name for name in listed if target.write_id in name]
