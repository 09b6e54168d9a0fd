"""Files in an object store as sources of loads, on both engines."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow.fs import S3FileSystem
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.errors import SourceError
from tests.support.load_cases import orders
from tests.support.s3 import make_s3_catalog, s3_server

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with s3_server() as server:
        opened = make_s3_catalog(tmp_path, server, bucket="sources")
        yield opened
        opened.close()


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "local":
        return {"engine": "local"}
    return {"engine": "spark", "spark": request.getfixturevalue("running_spark")}


def _store(catalog: SqlCatalog) -> S3FileSystem:
    properties = catalog.properties
    return S3FileSystem(
        endpoint_override=properties["s3.endpoint"],
        access_key=properties["s3.access-key-id"],
        secret_key=properties["s3.secret-access-key"],
        region=properties["s3.region"],
    )


def test_files_of_a_bucket_are_loaded_with_the_catalogs_access(
    catalog: SqlCatalog, tmp_path: Path, engine: dict[str, Any]
) -> None:
    store = _store(catalog)
    pq.write_table(orders(0, 50), "sources/in/a/1.parquet", filesystem=store)
    pq.write_table(orders(50, 50), "sources/in/b/2.parquet", filesystem=store)
    with store.open_output_stream("sources/in/3.csv.gz", compression=None) as file:
        file.write(gzip.compress(b"id,price,country\n100,1.5,SE\n"))
    options: dict[str, Any] = {"catalog": catalog, "state": tmp_path / "state", **engine}
    report = ice.load(
        ["s3://sources/in/**/*.parquet", "s3://sources/in/3.csv.gz"], "db.t", **options
    )
    assert isinstance(report, ice.LoadReport)
    assert (report.rows_inserted, report.files_read) == (101, 3)
    for rows in (0, 10):
        if rows:
            pq.write_table(orders(200, rows), "sources/in/a/4.parquet", filesystem=store)
        again = ice.load("s3://sources/in/a", "db.u", incremental=True, **options)
        assert isinstance(again, ice.LoadReport)
    assert (again.rows_read, again.files_read) == (10, 1)
    with pytest.raises(SourceError, match="no file is at 's3://sources/none'"):
        ice.load("s3://sources/none", "db.t", **options)
    access = {"s3.endpoint": "http://127.0.0.1:1", "s3.secret-access-key": "hunter2"}
    with pytest.raises(SourceError, match="can't be opened") as raised:
        ice.load(
            {"path": "s3://sources/x.csv", "options": access},
            "db.t",
            **options,
        )
    assert "hunter2" not in str(raised.value)


def test_an_object_of_any_name_is_loaded_once(catalog: SqlCatalog, tmp_path: Path) -> None:
    store = _store(catalog)
    names = ("line\u2028separator", "next\u0085line", "100%25 done", "number #1", "what?", "[a] *")
    for number, name in enumerate(names):
        with store.open_output_stream(f"sources/odd/{name}.parquet") as file:
            pq.write_table(orders(number, 1), file)
    options: dict[str, Any] = {"catalog": catalog, "state": tmp_path / "state", "engine": "local"}
    for source in ("s3://sources/odd", "s3://sources/odd/*.parquet"):
        into = f"db.t{len(source)}"
        found = [ice.load(source, into, incremental=True, **options) for _ in range(3)]
        assert [each.rows_inserted for each in found] == [len(names), 0, 0]
    for number, name in enumerate(names):  # by itself: what it holds is not taken for a glob
        ice.load(f"s3://sources/odd/{name}.parquet", f"db.n{number}", **options)
        rows = catalog.load_table(f"db.n{number}").scan().to_arrow()
        assert rows.column("id").to_pylist() == [number]
    assert ice.load("s3://sources/odd/what?.par*", "db.globbed", **options).rows_inserted == 1
