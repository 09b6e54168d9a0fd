"""Orphans on an object store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.in_flight import InFlightWrite
from icestream.write.target import WriteTarget
from tests.support.s3 import make_s3_catalog, s3_server
from tests.support.stored import referenced_files

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with s3_server() as endpoint:
        catalog = make_s3_catalog(tmp_path, endpoint)
        yield catalog
        catalog.close()


def _keys(table: Table) -> tuple[FileSystem, set[str]]:
    io = table.io
    assert isinstance(io, PyArrowFileIO)
    scheme, bucket, path = io.parse_location(table.location())
    store = io.fs_by_scheme(scheme, bucket)
    listed = store.get_file_info(FileSelector(path, recursive=True))
    return store, {f"s3://{info.path}" for info in listed if info.is_file}


@pytest.mark.parametrize("layout", ["true", "false"])
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_strays_are_found_and_deleted_on_s3(catalog: SqlCatalog, layout: str, scheme: str) -> None:
    table = catalog.create_table(
        "db.t",
        _SCHEMA,
        location=f"{scheme}://warehouse/tables/db/t",
        properties={"write.object-storage.enabled": layout},
    )
    with table.update_spec() as update:
        update.add_identity("part")
    ice.append(table, pa.table({"id": [1, 2], "part": ["a", "b c"]}, schema=_SCHEMA))
    store, before = _keys(table)
    target = WriteTarget.of(table)
    InFlightWrite(target, operation="append").mark()
    left = ice.write_files(target, pa.table({"id": [3], "part": ["a"]}, schema=_SCHEMA))
    with store.open_output_stream("warehouse/tables/db/t/data/stray#1?.parquet") as stream:
        stream.write(b"stray")
    report = ice.orphans(table, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"{table.location()}/data/stray#1?.parquet"]
    assert report.kept_in_flight == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icestream.operations.upkeep.markers._runs_here", lambda *_: False)
        report = ice.orphans(table, older_than=0, delete=True)
    assert {file.path for file in report.files if file.path.endswith("parquet")} == {left[0].path}
    _, after = _keys(table)
    assert after == before
    assert after == {path.replace("s3a://", "s3://") for path in referenced_files(table)}
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
