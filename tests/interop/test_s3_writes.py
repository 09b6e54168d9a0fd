"""Writes to an object store: the same rows, the layout that the table asks for, nothing left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, FileType, S3FileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform

import icestream as ice
from tests.support.partitions import partition_rows, partition_schema
from tests.support.s3 import LatencyProxy, make_s3_catalog, s3_server
from tests.support.tables import all_types_rows, all_types_schema, data_files

pytestmark = pytest.mark.timeout(120)

_BY_CATEGORY = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "category"),
    PartitionField(1, 1001, BucketTransform(2), "id_bucket"),
)


@pytest.fixture(scope="module")
def proxy() -> Iterator[LatencyProxy]:
    with s3_server() as server, LatencyProxy(server) as proxy:
        yield proxy


@pytest.fixture
def catalog(proxy: LatencyProxy, tmp_path, request) -> Iterator[SqlCatalog]:
    bucket = f"b{abs(hash(request.node.name)):x}"
    catalog = make_s3_catalog(tmp_path, proxy.url, bucket=bucket)
    yield catalog
    proxy.clear()
    catalog.close()


def _objects(table: Table) -> set[str]:
    """Everything below the table's location."""
    properties = table.io.properties
    store = S3FileSystem(
        endpoint_override=properties["s3.endpoint"],
        access_key=properties["s3.access-key-id"],
        secret_key=properties["s3.secret-access-key"],
        region=properties["s3.region"],
        scheme="http",
    )
    below = FileSelector(table.location().removeprefix("s3://"), recursive=True)
    return {info.path for info in store.get_file_info(below) if info.type == FileType.File}


def _ids(table: Table) -> list[int]:
    """Read by PyIceberg and by us."""
    by_pyiceberg = sorted(table.refresh().scan().to_arrow()["id"].to_pylist())
    by_us = sorted(value for batch in ice.scan(table) for value in batch["id"].to_pylist())
    assert by_us == by_pyiceberg
    return by_us


def _rows(start: int, stop: int) -> pa.Table:
    ids = pa.array(range(start, stop), pa.int64())
    noise = np.random.default_rng(start).integers(0, 2**62, stop - start)
    return pa.table({"id": ids, "noise": noise})


def _make(catalog: SqlCatalog, **properties: str) -> Table:
    return catalog.create_table("db.t", _rows(0, 0).schema, properties=properties)


@contextmanager
def _unchanged(table: Table) -> Iterator[None]:
    objects, location = _objects(table), table.metadata_location
    yield
    assert _objects(table) == objects
    assert table.refresh().metadata_location == location


def test_rows_are_appended_replaced_and_deleted(catalog):
    table = _make(catalog)
    ice.append(table, _rows(0, 1000))
    ice.append(table, _rows(1000, 2000))
    ice.overwrite(table, _rows(5000, 5100), where="id < 1500")
    ice.delete(table, "id >= 1990 and id < 2000")
    assert _ids(table) == [*range(1500, 1990), *range(5000, 5100)]
    ice.overwrite(table, _rows(0, 10))
    assert _ids(table) == list(range(10))
    assert not [path for path in _objects(table) if "in-flight" in path]


def test_every_type_is_stored_and_read(catalog):
    table = catalog.create_table("db.t", all_types_schema())
    ice.append(table, all_types_rows(200))
    assert _ids(table) == list(range(200))


@pytest.mark.slow
def test_files_roll_at_their_size(catalog):
    """Files of several parts: an object store gets them in pieces of 5 MB and more."""
    table = _make(catalog, **{"write.target-file-size-bytes": "12000000"})
    report = ice.append(table, (_rows(n * 100_000, (n + 1) * 100_000) for n in range(24)))
    sizes = [file.file_size_in_bytes for file in data_files(table.refresh())]
    assert report.files_added == len(sizes) > 1
    assert max(sizes) < 12_000_000 * 1.15
    assert table.scan().count() == 2_400_000
    assert _ids(table) == list(range(2_400_000))


def test_partitions_are_folders_below_the_data(catalog):
    table = catalog.create_table("db.t", partition_schema(), partition_spec=_BY_CATEGORY)
    rows = pa.Table.from_pylist(partition_rows(0, 60), schema=table.schema().as_arrow())
    ice.append(table, rows)
    assert _ids(table) == list(range(60))
    folder = re.escape(f"{table.location()}/data/")
    for file in data_files(table):
        assert re.fullmatch(
            folder + r"category=[^/]*/id_bucket=[01]/[^/]+\.parquet", file.file_path
        )
    replaced = pa.Table.from_pylist(
        [{**row, "id": 1000 + row["id"]} for row in partition_rows(0, 1)], schema=rows.schema
    )
    ice.overwrite(table, replaced, partitions="dynamic")
    found = _ids(table)
    assert found[-1] == 1000
    assert len(found) < 60


@pytest.mark.parametrize("with_partitions", ["true", "false"])
def test_the_object_store_layout_spreads_files_by_hash(catalog, with_partitions):
    properties = {
        "write.object-storage.enabled": "true",
        "write.object-storage.partitioned-paths": with_partitions,
    }
    table = catalog.create_table(
        "db.t", partition_schema(), partition_spec=_BY_CATEGORY, properties=properties
    )
    rows = pa.Table.from_pylist(partition_rows(0, 60), schema=table.schema().as_arrow())
    ice.append(table, rows)
    assert _ids(table) == list(range(60))
    files = [file.file_path for file in data_files(table)]
    hashed = re.escape(f"{table.location()}/data/") + r"[01]{4}/[01]{4}/[01]{4}/[01]{8}"
    folders = r"/category=[^/]*/id_bucket=[01]/" if with_partitions == "true" else r"-"
    assert len(files) > 5
    for path in files:
        assert re.fullmatch(hashed + folders + r"[^/]+\.parquet", path), path
    assert len({re.match(hashed, path)[0] for path in files}) > 5


def test_files_go_where_the_table_says(catalog):
    table = _make(catalog)
    elsewhere = table.location() + "/elsewhere"
    with table.transaction() as change:
        change.set_properties({"write.data.path": elsewhere})
    ice.append(table, _rows(0, 10))
    assert [f.file_path.rpartition("/")[0] for f in data_files(table)] == [elsewhere]


def test_a_stream_that_fails_leaves_no_object(catalog):
    table = _make(catalog, **{"write.target-file-size-bytes": "200000"})
    ice.append(table, _rows(0, 10))
    seen = []

    def broken() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            yield from _rows(number * 50_000, (number + 1) * 50_000).to_batches()
        seen.extend(_objects(table))
        raise RuntimeError("the source broke")

    with _unchanged(table), pytest.raises(RuntimeError, match="the source broke"):
        ice.append(table, broken(), memory="32MB")
    assert len([path for path in seen if path.endswith(".parquet")]) > 3


_FAILURES = {
    "data": ("/data/", ice.WriteError),
    "the marker": ("in-flight", ice.WriteError),
    "a manifest": ("-m0.avro", ice.CommitError),
    "the manifest list": ("/snap-", ice.CommitError),
    "the metadata": (".metadata.json", ice.CommitError),
}


@pytest.mark.parametrize(("part", "error"), _FAILURES.values(), ids=_FAILURES.keys())
@pytest.mark.parametrize("status", [403, 503], ids=["read-only", "overloaded"])
def test_a_store_that_refuses_a_part_is_named_and_nothing_is_left(
    catalog, proxy, part, error, status
):
    table = _make(catalog)
    ice.append(table, _rows(0, 10))
    with _unchanged(table):
        proxy.fail_next(50, status, methods=("PUT", "POST"), path_contains=part)
        with pytest.raises(error) as caught:
            ice.append(table, _rows(0, 1000))
        proxy.clear()
    assert part.strip("/") in str(caught.value), str(caught.value)
    assert _ids(table) == list(range(10))


def test_a_bucket_that_does_not_exist_is_named(catalog):
    table = _make(catalog)
    ice.append(table, _rows(0, 10))
    with table.transaction() as change:
        change.set_properties({"write.data.path": "s3://no-such-bucket/data"})
    with _unchanged(table), pytest.raises(ice.WriteError, match="no-such-bucket"):
        ice.append(table, _rows(0, 10))


def test_objects_that_can_not_be_deleted_keep_their_marker(catalog, proxy):
    """So that `icestream.orphans` finds them."""
    table = _make(catalog)
    ice.append(table, _rows(0, 10))
    before = _objects(table)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from _rows(0, 300_000).to_batches()
        raise RuntimeError("the source broke")

    proxy.fail_next(50, 403, methods=("DELETE", "POST"), path_contains="")
    with pytest.raises(Exception):  # noqa: B017, PT011
        ice.append(table, broken(), memory="32MB")
    proxy.clear()
    left = _objects(table) - before
    assert not [p for p in left if p.endswith(".parquet")] or [p for p in left if "in-flight" in p]
