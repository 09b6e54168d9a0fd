"""Tables on an object store: the same rows, through faults, and errors that say which object."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.fault.watched_io import ARROW_THREADS, settled
from tests.support.delete_files import commit_position_deletes
from tests.support.leaks import assert_no_leaks
from tests.support.s3 import LatencyProxy, make_s3_catalog, s3_server
from tests.support.tables import commit_files, data_files, write_orc_file, write_parquet_file

pytestmark = pytest.mark.timeout(120)

_FILES = 5
_FILE_ROWS = 20_000
_ALL = list(range(_FILES * _FILE_ROWS))
_LARGE_ROWS = 300_000
_LARGE_ROW_GROUP_ROWS = 25_000
_ORDERS = {
    "task": ice.TaskOrder(),
    "arrival-4": ice.ArrivalOrder(4),
}
_every_order = pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
_every_format = pytest.mark.parametrize("file_format", ["parquet", "orc"])
# Connections are kept for the next request, and Arrow's threads may call into Python.
_KEPT = {"ignore_descriptors": ("socket:",), "ignore_threads": ARROW_THREADS}


@pytest.fixture(scope="module")
def proxy() -> Iterator[LatencyProxy]:
    with s3_server() as server, LatencyProxy(server) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def store(proxy: LatencyProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_s3_catalog(tmp_path_factory.mktemp("store"), proxy.url)
    for file_format, write, options in (
        ("parquet", write_parquet_file, {"row_group_rows": 5_000}),
        ("orc", write_orc_file, {"stripe_rows": 5_000}),
    ):
        _make(catalog, f"db.{file_format}", write, options)
    yield catalog
    catalog.close()


def _make(catalog: SqlCatalog, name: str, write, options) -> Table:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = catalog.create_table(name, schema)
    written = []
    for file in range(_FILES):
        ids = range(file * _FILE_ROWS, (file + 1) * _FILE_ROWS)
        rows = pa.table({"id": list(ids), "text": [f"row {i}" for i in ids]}, schema=schema)
        written.append(write(table, rows, **options))
    commit_files(table, written)
    return table


@pytest.fixture(scope="module")
def large(store: SqlCatalog) -> dict[str, Table]:
    """One object of 4 MB that does not shrink, in each format."""
    random = np.random.default_rng(3)
    ids = pa.array(range(_LARGE_ROWS), pa.int64())
    rows = pa.table({"id": ids, "noise": random.integers(0, 2**62, _LARGE_ROWS)})
    tables = {}
    for file_format, write, options in (
        (
            "parquet",
            write_parquet_file,
            {"row_group_rows": _LARGE_ROW_GROUP_ROWS, "use_dictionary": False},
        ),
        ("orc", write_orc_file, {"stripe_rows": _LARGE_ROW_GROUP_ROWS}),
    ):
        table = store.create_table(f"db.large_{file_format}", rows.schema)
        commit_files(table, [write(table, rows, **options)])
        tables[file_format] = table
    return tables


@pytest.fixture
def table(store: SqlCatalog, proxy: LatencyProxy, file_format: str) -> Iterator[Table]:
    proxy.clear()
    yield store.load_table(f"db.{file_format}")
    proxy.clear()
    proxy.latency_seconds = 0


def _ids(scan: ice.Scan) -> list[int]:
    return [value for batch in scan for value in batch.column("id").to_pylist()]


def _key(path: str) -> str:
    return path.rsplit("/", 1)[1]


@_every_order
@_every_format
def test_the_rows_are_those_that_pyiceberg_reads(table, order):
    with assert_no_leaks(**_KEPT):
        scan = ice.scan(table, order=order, where="id >= 1000", memory="64MB")
        rows = pa.Table.from_batches(scan, schema=scan.schema)
    expected = table.scan(row_filter="id >= 1000").to_arrow()
    if isinstance(order, ice.ArrivalOrder):
        rows, expected = rows.sort_by("id"), expected.sort_by("id")
    assert rows.to_pylist() == expected.to_pylist()
    assert scan.report.retries == 0


@_every_format
def test_latency_changes_nothing_but_the_time(table, proxy):
    proxy.latency_seconds = 0.02
    assert _ids(ice.scan(table)) == table.scan().to_arrow()["id"].to_pylist()


@pytest.mark.parametrize("file_format", ["parquet"])
def test_files_are_read_at_the_same_time(table, proxy):
    proxy.latency_seconds = 0.05
    scan = ice.scan(table, order=ice.ArrivalOrder(4))
    scan.splits()
    proxy.clear()
    assert sorted(_ids(scan)) == _ALL
    assert proxy.max_in_flight > 1


# Fetched ahead, of row groups whose columns take 26 kB and 200 kB. A decoder that asks for 64 kB at
# a time needs five requests for each of them, one after the other.


@pytest.mark.parametrize(
    ("memory", "requests_per_row_group"),
    [("64MB", 1), ("5MB", 3)],
    ids=["whole row groups", "columns in blocks of 156 kB"],
)
def test_a_row_group_takes_few_requests(large, proxy, memory, requests_per_row_group):
    order = ice.ArrivalOrder(1, batch_size=5_000)
    scan = ice.scan(large["parquet"], order=order, memory=memory)
    (split,) = scan.splits()
    proxy.clear()
    assert _ids(scan) == list(range(_LARGE_ROWS))
    footer, row_groups = 1, _LARGE_ROWS // _LARGE_ROW_GROUP_ROWS
    gets = [request for request in proxy.log("GET") if _key(split.path) in request.path]
    assert len(gets) == footer + requests_per_row_group * row_groups


def test_the_next_row_group_is_under_way_while_one_stream_decodes(large, proxy):
    scan = ice.scan(large["parquet"], order=ice.ArrivalOrder(1), columns=["noise"])
    scan.splits()
    proxy.clear()
    proxy.latency_seconds = 0.1
    assert sum(batch.num_rows for batch in scan) == _LARGE_ROWS
    proxy.latency_seconds = 0
    assert proxy.max_in_flight > 1


@pytest.mark.parametrize("fault", ["fail_next", "reset_connection_next", "truncate_next"])
@_every_order
@_every_format
def test_a_request_that_fails_is_tried_again(table, proxy, order, fault):
    scan = ice.scan(table, order=order, retry_wait_seconds=0.01)
    splits = scan.splits()
    for split in splits[1:3]:
        getattr(proxy, fault)(1, path_contains=_key(split.path))
    with assert_no_leaks(**_KEPT):
        ids = _ids(scan)
    assert proxy.faults_left == 0
    assert sorted(ids) == _ALL
    if isinstance(order, ice.TaskOrder):
        assert ids == table.scan().to_arrow()["id"].to_pylist()
    assert scan.report.retries >= 2


@pytest.mark.parametrize("fault", ["fail_next", "reset_connection_next", "truncate_next"])
@_every_format
def test_a_request_that_fails_in_the_middle_of_a_file_is_tried_again(
    large, proxy, fault, file_format
):
    table = large[file_format]
    order = ice.ArrivalOrder(1, max_buffered_batches=1)
    scan = ice.scan(table, order=order, memory="8MB", batch_size=1_000, retry_wait_seconds=0.01)
    (split,) = scan.splits()
    ids: list[int] = []
    for number, batch in enumerate(scan):
        if number == 2:
            getattr(proxy, fault)(1, path_contains=_key(split.path))
        ids.extend(batch.column("id").to_pylist())
    assert proxy.faults_left == 0
    assert ids == list(range(_LARGE_ROWS))
    assert scan.report.retries >= 1


@pytest.mark.parametrize("status", [500, 503])
@_every_format
def test_requests_that_keep_failing_end_the_scan_with_the_object_they_were_for(
    table, proxy, status
):
    split = ice.scan(table).splits()[2]
    proxy.fail_next(1_000, status=status, path_contains=_key(split.path))
    scan = ice.scan(table, retries=2, retry_wait_seconds=0.01)
    with (
        assert_no_leaks(**_KEPT),
        pytest.raises(ice.TransientReadError) as caught,
    ):
        _ids(scan)
    assert (caught.value.path, caught.value.split) == (split.path, split.id)
    assert scan.report.retries == 2
    assert not scan.report.finished


@_every_format
def test_an_object_that_may_not_be_read_is_not_tried_again(table, proxy):
    split = ice.scan(table).splits()[1]
    proxy.fail_next(1_000, status=403, methods=("GET", "HEAD"), path_contains=_key(split.path))
    scan = ice.scan(table, retry_wait_seconds=0.01)
    with pytest.raises(ice.ReadError) as caught:
        _ids(scan)
    assert not isinstance(caught.value, ice.TransientReadError)
    assert caught.value.path == split.path
    assert scan.report.retries == 0


@_every_order
@_every_format
def test_a_missing_object_is_named_and_not_tried_again(store, proxy, file_format, order):
    name = f"db.gone_{file_format}_{len(store.list_tables('db'))}"
    write = write_parquet_file if file_format == "parquet" else write_orc_file
    table = _make(store, name, write, {})
    path = data_files(table)[3].file_path
    table.io.delete(path)
    proxy.clear()
    scan = ice.scan(table, order=order)
    with (
        assert_no_leaks(**_KEPT),
        pytest.raises(ice.FileMissingError) as caught,
    ):
        _ids(scan)
    assert caught.value.path == path
    assert scan.report.retries == 0
    store.drop_table(name)


@_every_format
def test_a_missing_object_that_only_the_read_finds_out_about_is_named(table, proxy):
    split = ice.scan(table).splits()[1]
    proxy.fail_next(1_000, status=404, methods=("GET",), path_contains=_key(split.path))
    with pytest.raises(ice.FileMissingError) as caught:
        _ids(ice.scan(table, retry_wait_seconds=0.01))
    assert caught.value.path == split.path


@_every_order
@pytest.mark.parametrize("file_format", ["parquet"])
def test_position_deletes_on_the_store_survive_faults(store, proxy, order, file_format):
    name = f"db.deletes_{len(store.list_tables('db'))}"
    table = _make(store, name, write_parquet_file, {"row_group_rows": 5_000})
    paths = [data_file.file_path for data_file in data_files(table)]
    deletes = commit_position_deletes(
        table, {path: range(0, _FILE_ROWS, 2) for path in paths}, one_file=True
    )
    proxy.clear()
    proxy.fail_next(1, path_contains=_key(deletes[0]))
    proxy.reset_connection_next(1, path_contains=_key(paths[0]))
    scan = ice.scan(table, order=order, retry_wait_seconds=0.01)
    assert sorted(_ids(scan)) == _ALL[1::2]
    assert proxy.faults_left == 0
    assert scan.report.retries >= 2
    store.drop_table(name)


@_every_order
@_every_format
def test_no_request_comes_after_an_early_stop(table, proxy, order):
    scan = ice.scan(table, order=order, batch_size=500, memory="8MB")
    scan.splits()
    proxy.clear()
    with assert_no_leaks(**_KEPT):
        for _ in scan:
            break
    requests = proxy.requests
    assert settled(lambda: proxy.requests) == requests > 0
    assert not scan.report.finished


@_every_order
def test_an_endpoint_that_is_gone_ends_in_a_typed_error(tmp_path: Path, proxy, order):
    with s3_server() as server, LatencyProxy(server) as dying:
        bucket = f"dying-{dying.url.rsplit(':', 1)[1]}"
        catalog = make_s3_catalog(tmp_path, dying.url, bucket=bucket)
        table = _make(catalog, "db.t", write_parquet_file, {"row_group_rows": 5_000})
        scan = ice.scan(table, order=order, retries=1, retry_wait_seconds=0.01)
        paths = {split.path for split in scan.splits()}
    with (
        assert_no_leaks(**_KEPT),
        pytest.raises(ice.TransientReadError) as caught,
    ):
        _ids(scan)
    assert caught.value.path in paths
    catalog.close()


def test_an_endpoint_that_dies_in_the_middle_ends_in_a_typed_error(tmp_path: Path):
    with s3_server() as server, LatencyProxy(server) as dying:
        bucket = f"dying-{dying.url.rsplit(':', 1)[1]}"
        catalog = make_s3_catalog(tmp_path, dying.url, bucket=bucket)
        table = _make(catalog, "db.t", write_parquet_file, {"row_group_rows": 5_000})
        order = ice.ArrivalOrder(1, max_buffered_batches=1)
        scan = ice.scan(table, order=order, batch_size=100, retries=1, retry_wait_seconds=0.01)
        batches = iter(scan)
        rows = next(batches).num_rows
    with pytest.raises(ice.TransientReadError):
        rows += sum(batch.num_rows for batch in batches)
    assert rows < len(_ALL)
    assert not scan.report.finished
    catalog.close()


def test_a_server_that_never_answers_ends_in_a_typed_error(tmp_path: Path, proxy):
    """Its port takes connections; nobody reads from them."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        bucket = f"silent-{silent.getsockname()[1]}"
        catalog = make_s3_catalog(tmp_path, proxy.url, bucket=bucket)
        table = _make(catalog, "db.t", write_parquet_file, {})
        scan = ice.scan(table, retries=0)
        splits = scan.splits()
        table.io.properties.update(
            {
                "s3.endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
                "s3.connect-timeout": "1",
                "s3.request-timeout": "1",
            }
        )
        for split in splits:
            split.context.io.properties.update(table.io.properties)
            split.context.io.fs_by_scheme.cache_clear()
        with pytest.raises(ice.TransientReadError):
            _ids(ice.read_splits(splits, retries=0))
    catalog.close()
