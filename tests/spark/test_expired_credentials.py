"""A store stops accepting keys while Spark's tasks work: the driver begins again with new ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.tasks.direct_write import encode_share
from icestream.spark.writing import direct_rows, merge_job, written_frame
from tests.support.s3 import LatencyProxy, s3_server
from tests.support.spark_orders import ORDERS, order_ids
from tests.support.spark_stream import append_orders
from tests.support.vending import Vending, vending_catalog

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[LatencyProxy]:
    """An S3 server behind a proxy that answers `ExpiredToken`."""
    with s3_server() as url, LatencyProxy(url) as proxy:
        yield proxy


@pytest.fixture
def vending(store: LatencyProxy, tmp_path: Path) -> Iterator[Vending]:
    with vending_catalog(tmp_path, store) as made:
        made.server.backend.create_table("db.t", ORDERS)
        yield made


def _expire_for_the_first_tasks(
    vending: Vending, monkeypatch: pytest.MonkeyPatch, module: Any, name: str = "map_in_arrow"
) -> list[int]:
    """Let all keys expire when the first job starts, until the catalog is asked for others.

    Returns:
        How many keys had been vended when each job began.
    """
    real = getattr(module, name)
    jobs: list[int] = []

    def expire_first(*arguments: Any, **options: Any) -> Any:
        if not jobs:
            vending.store.expire_after(0)
        jobs.append(vending.vended)
        return real(*arguments, **options)

    def vend() -> dict[str, str]:
        if jobs:
            vending.store.expire_after(None)
        return vending.vend()

    vending.server.vended = vend
    monkeypatch.setattr(module, name, expire_first)
    return jobs


def test_an_append_begins_again(
    spark: Any, vending: Vending, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(20).selectExpr("id", "'north' as region", "1.5D as price")
    jobs = _expire_for_the_first_tasks(vending, monkeypatch, written_frame)
    report = ice_spark.append(frame, "db.t", catalog=vending.catalog)
    assert report.rows_inserted == 20
    assert len(jobs) == 2
    assert jobs[1] > jobs[0]
    table = vending.table()
    assert order_ids(table) == list(range(20))
    assert len(table.snapshots()) == 1


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_reads_a_table_again_with_new_keys(
    spark: Any, vending: Vending, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    append_orders(vending.server.backend.load_table("db.t"), 0, 10)
    vending.server.backend.create_table("db.copy", ORDERS)
    keys: list[str] = []

    def encode(parts: list[Any]) -> bytes:
        keys.extend(part.piece.context.io.properties["s3.access-key-id"] for part in parts)
        return encode_share(parts)

    job = "map_in_arrow" if mode == "append" else "map_shares"
    jobs = _expire_for_the_first_tasks(vending, monkeypatch, direct_rows, job)
    monkeypatch.setattr(direct_rows, "encode_share", encode)
    source = {"table": "db.t"}
    options: dict[str, Any] = {"mode": mode, "keys": "id" if mode == "merge" else None}
    report = ice.load(source, "db.copy", catalog=vending.catalog, spark=spark, state="", **options)
    assert isinstance(report, ice.LoadReport)
    assert report.direct
    assert len(jobs) == len(keys) == 2
    assert keys[0] != keys[1]
    assert order_ids(vending.catalog.load_table("db.copy")) == list(range(10))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_begins_again(
    spark: Any, vending: Vending, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    append_orders(vending.server.backend.load_table("db.t"), 0, 10)
    frame = spark.range(5, 20).selectExpr("id", "'south' as region", "2.5D as price")
    jobs = _expire_for_the_first_tasks(vending, monkeypatch, merge_job)
    report = ice_spark.merge(frame, "db.t", catalog=vending.catalog, on="id", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (5, 10)
    assert len(jobs) == 2
    table = vending.table()
    assert order_ids(table) == list(range(20))
    assert len(table.snapshots()) == 2


def test_an_action_of_the_user_says_what_to_do(spark: Any, vending: Vending) -> None:
    append_orders(vending.server.backend.load_table("db.t"), 0, 10)
    frame = ice_spark.read(spark, "db.t", catalog=vending.catalog)
    vending.store.expire_after(0)
    with pytest.raises(Exception, match=r"(?s)CredentialsExpiredError.*have expired"):
        frame.count()
    vending.store.expire_after(None)
    assert ice_spark.read(spark, "db.t", catalog=vending.catalog).count() == 10
