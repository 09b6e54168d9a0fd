"""Tables on the loopback S3 read right, slowly and with faults when asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.support.leaks import assert_no_leaks
from tests.support.s3 import LatencyProxy, make_s3_catalog, s3_server
from tests.support.tables import add_parquet_file

_ROWS = pa.table({"id": pa.array(range(50_000), pa.int64())})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[LatencyProxy]:
    with LatencyProxy(server) as proxy:
        yield proxy


def _table(proxy: LatencyProxy, tmp_path: Path, *, max_attempts: int = 1) -> Table:
    bucket = f"bucket-{proxy.url.rsplit(':', 1)[1]}"
    catalog = make_s3_catalog(tmp_path, proxy.url, bucket=bucket, max_attempts=max_attempts)
    table = catalog.create_table("db.t", _ROWS.schema)
    add_parquet_file(table, _ROWS)
    proxy.clear()
    return table


def test_requests_and_bytes_are_counted(proxy, tmp_path):
    table = _table(proxy, tmp_path)
    assert proxy.requests == 0
    assert table.scan().to_arrow().num_rows == 50_000
    (task,) = table.scan().plan_files()
    data = [request for request in proxy.log("GET") if request.path.endswith(".parquet")]
    assert data
    assert all(request.byte_range for request in data)
    read_bytes = sum(request.sent_bytes for request in data)
    assert read_bytes >= task.file.file_size_in_bytes / 2
    assert proxy.sent_bytes > read_bytes
    assert proxy.requests == len(proxy.log())
    assert proxy.max_in_flight >= 1
    table.catalog.close()


def test_each_request_takes_the_latency(proxy, tmp_path):
    table = _table(proxy, tmp_path)
    proxy.latency_seconds = 0.1
    began = time.monotonic()
    table.scan().to_arrow()
    elapsed = time.monotonic() - began
    sequential = proxy.requests - 2
    assert sequential * 0.1 < elapsed < proxy.requests * 0.1 + 10
    table.catalog.close()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("fail_next", "SERVICE_UNAVAILABLE|SLOW_DOWN"),
        ("reset_connection_next", "NETWORK_CONNECTION"),
        ("truncate_next", "NETWORK_CONNECTION"),
    ],
)
def test_faults_come_through_at_once(proxy, tmp_path, fault, message):
    table = _table(proxy, tmp_path)
    getattr(proxy, fault)(1, path_contains=".parquet")
    with pytest.raises(OSError, match=message):
        table.scan().to_arrow()
    assert proxy.log()[-1].fault, "retried"
    assert proxy.faults_left == 0
    assert table.scan().to_arrow().num_rows == 50_000
    table.catalog.close()


def test_three_attempts_outlast_two_faults(proxy, tmp_path):
    table = _table(proxy, tmp_path, max_attempts=3)
    proxy.fail_next(2, status=500, path_contains=".parquet")
    assert table.scan().to_arrow().num_rows == 50_000
    assert [request.status for request in proxy.log() if request.fault] == [500, 500]
    table.catalog.close()


def test_server_and_proxy_end_with_their_contexts():
    with assert_no_leaks(), s3_server() as server, LatencyProxy(server) as proxy:
        processes = [proxy._process]
    assert [process.poll() for process in processes] == [0]
