"""Credentials that a catalog vends and a store stops to accept: the work goes on with new ones."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import icestream as ice
from icestream.credentials import expiry_seconds
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
