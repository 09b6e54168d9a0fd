"""One Parquet file: its row groups, its metrics, and what is left of it when something fails."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.errors import WriteError, WriterClosedError
from icestream.write.parquet.parquet_writer import ParquetFileWriter
from tests.support.leaks import assert_no_leaks
from tests.support.tables import make_catalog
from tests.support.writing import Parts, local_path, read_back, row_groups

_SCHEMA = Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def parts(catalog: SqlCatalog) -> Parts:
    return Parts(catalog.create_table("db.t", _SCHEMA))


def _rows(parts: Parts, count: int = 1000) -> pa.RecordBatch:
    texts = [f"text {i}" for i in range(count)]
    return parts.batch({"n": np.arange(count), "text": texts})


def test_each_call_makes_exactly_one_row_group(parts: Parts) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts, 10), _rows(parts, 20), _rows(parts, 0)])
    writer.write_row_group([_rows(parts, 2_000_000)])
    writer.write_row_group([])
    writer.write_row_group([_rows(parts, 0)])
    writer.write_row_group([_rows(parts, 1)])
    new_file = writer.close()
    assert row_groups(new_file) == [30, 2_000_000, 1]
    assert new_file.rows == 2_000_031


def test_the_file_is_made_with_the_first_row_group(parts: Parts) -> None:
    writer = parts.file_writer()
    assert parts.data_files() == []
    writer.write_row_group([_rows(parts)])
    assert len(parts.data_files()) == 1
    writer.abort()


def test_the_new_file_says_what_is_in_storage(parts: Parts) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    said_bytes = writer.body_bytes + writer.footer_bytes
    new_file = writer.close()
    size = local_path(new_file).stat().st_size
    assert new_file.bytes == size
    assert said_bytes == pytest.approx(size, rel=0.2)
    assert new_file.table_uuid == str(parts.table.metadata.table_uuid)
    assert new_file.write_id == parts.target.write_id
    assert new_file.schema_id == parts.table.schema().schema_id
    assert (new_file.spec_id, new_file.partition, new_file.sort_order_id) == (0, (), None)
    assert read_back([new_file]).to_batches()[0].equals(_rows(parts))
    assert pickle.loads(pickle.dumps(new_file)) == new_file


def test_rows_have_the_ids_of_their_fields(parts: Parts) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    schema = pq.read_schema(local_path(writer.close()))
    assert [f.metadata[b"PARQUET:field_id"] for f in schema] == [b"1", b"2"]


@pytest.mark.parametrize("schema_id", [1, 0], ids=["a new id", "an id of another schema"])
def test_a_file_of_an_evolved_schema_has_no_schema_id_yet(parts: Parts, schema_id: int) -> None:
    evolved = Schema(*_SCHEMA.fields, NestedField(3, "new", LongType()), schema_id=schema_id)
    parts.target = parts.target.with_schema(evolved)
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    assert writer.close().schema_id is None


def test_a_sorted_file_says_which_order_it_has(parts: Parts) -> None:
    with parts.table.update_sort_order() as update:
        update.asc("n", IdentityTransform())
    parts = Parts(parts.table)
    writer = ParquetFileWriter(
        parts.paths.new("n=1", (1,)),
        target=parts.target,
        settings=parts.settings,
        file_schema=parts.file_schema,
        partition=(1,),
        sorted=True,
    )
    writer.write_row_group([_rows(parts)])
    new_file = writer.close()
    assert new_file.sort_order_id == parts.table.sort_order().order_id == 1
    assert (new_file.spec_id, new_file.partition) == (parts.target.spec.spec_id, (1,))
    assert "/n=1/" in new_file.path


def test_split_offsets_and_column_sizes_are_those_of_the_row_groups(parts: Parts) -> None:
    writer = parts.file_writer()
    for _ in range(3):
        writer.write_row_group([_rows(parts)])
    new_file = writer.close()
    metadata = pq.read_metadata(local_path(new_file))
    groups = [metadata.row_group(i) for i in range(3)]
    starts = [g.column(0).dictionary_page_offset or g.column(0).data_page_offset for g in groups]
    sizes = [sum(g.column(i).total_compressed_size for g in groups) for i in range(2)]
    assert new_file.metrics["split_offsets"] == starts
    assert new_file.metrics["column_sizes"] == {1: sizes[0], 2: sizes[1]}


def test_long_columns_without_repeats_have_no_dictionary(parts: Parts) -> None:
    writer = parts.file_writer()
    rows = parts.batch({"n": np.arange(50_000), "text": ["a", "b"] * 25_000})
    writer.write_row_group([rows])
    group = pq.read_metadata(local_path(writer.close())).row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(2)] == [False, True]


def test_abort_deletes_the_file(parts: Parts) -> None:
    with assert_no_leaks():
        writer = parts.file_writer()
        writer.write_row_group([_rows(parts)])
        writer.abort()
        writer.abort()
    assert parts.data_files() == []


def test_nothing_is_written_to_a_file_after_its_abort(parts: Parts) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    kept_by_a_traceback = writer._writer
    writer.abort()
    del kept_by_a_traceback  # Its finaliser would fail on the closed stream.


def test_abort_before_anything_was_written_does_nothing(parts: Parts) -> None:
    parts.file_writer().abort()
    assert parts.data_files() == []


def test_abort_after_close_keeps_the_file(parts: Parts) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    new_file = writer.close()
    writer.abort()
    assert local_path(new_file).exists()
    writer.delete()
    assert not local_path(new_file).exists()


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_writer_that_has_ended_takes_nothing_more(parts: Parts, end: str) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    getattr(writer, end)()
    with pytest.raises(WriterClosedError):
        writer.write_row_group([_rows(parts)])
    with pytest.raises(WriterClosedError):
        writer.close()


def test_closing_without_rows_is_an_error(parts: Parts) -> None:
    writer = parts.file_writer()
    with pytest.raises(WriteError, match="no rows"):
        writer.close()
    assert parts.data_files() == []


def test_a_file_that_is_there_already_is_left_alone(parts: Parts) -> None:
    first = parts.file_writer()
    first.write_row_group([_rows(parts)])
    new_file = first.close()
    second = parts.file_writer()
    second.path = new_file.path
    with pytest.raises(WriteError, match="exists"):
        second.write_row_group([_rows(parts)])
    second.abort()
    assert read_back([new_file]).num_rows == 1000


def test_a_place_that_can_not_be_written_is_an_error_with_the_path(
    parts: Parts, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    writer = parts.file_writer()
    writer.path = f"file://{tmp_path}/file/x.parquet"
    with pytest.raises(WriteError, match=r"file/x\.parquet could not be written") as caught:
        writer.write_row_group([_rows(parts)])
    assert caught.value.path == writer.path
    assert isinstance(caught.value.__cause__, OSError)
    writer.abort()


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file of this process may have more than 100,000 bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _write_whole(writer: ParquetFileWriter, batch: pa.RecordBatch) -> None:
    writer.write_row_group([batch])
    writer.close()


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("rows", [1_000_000, 50_000], ids=["at once", "when the buffer is flushed"])
def test_a_full_disk_is_an_error_with_the_path_and_leaves_nothing(parts: Parts, rows: int) -> None:
    random = np.random.default_rng(1).integers(0, 2**62, rows)
    batch = parts.batch({"n": random, "text": ["x"] * rows})
    with assert_no_leaks():
        writer = parts.file_writer()
        with pytest.raises(WriteError, match="could not be written") as caught:
            _write_whole(writer, batch)
        assert caught.value.path == writer.path
        writer.abort()
        del caught
    assert parts.data_files() == []


@pytest.fixture
def fsspec_parts(tmp_path: Path) -> Iterator[Parts]:
    """The table behind fsspec, whose streams are Python's."""
    io = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}
    catalog = make_catalog(tmp_path, **io)
    yield Parts(catalog.create_table("db.t", _SCHEMA))
    catalog.close()


def test_files_are_written_through_fsspec_too(fsspec_parts: Parts) -> None:
    parts = fsspec_parts
    random = np.random.default_rng(1).integers(0, 2**62, 2_000_000)
    batch = parts.batch({"n": random, "text": ["x"] * len(random)})
    writer = parts.file_writer()
    for _ in range(2):
        writer.write_row_group([batch])
    new_file = writer.close()
    assert new_file.bytes == local_path(new_file).stat().st_size
    assert read_back([new_file])["n"].to_numpy()[: len(random)].tolist() == random.tolist()
    other = parts.file_writer()
    other.write_row_group([batch])
    other.abort()
    assert parts.data_files() == [local_path(new_file)]


class _FailingStream:
    """Stands in for storage that refuses when the file is completed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        self._stream.close()
        raise RuntimeError("upload refused")


class _FailingIO:
    def __init__(self, io: Any) -> None:
        self._io = io

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_output(self, location: str) -> Any:
        output = self._io.new_output(location)
        create = output.create
        output.create = lambda overwrite=False: _FailingStream(create(overwrite))
        return output


def test_a_failed_close_deletes_the_file(parts: Parts) -> None:
    parts.target = replace(parts.target, io=_FailingIO(parts.target.io))
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    assert len(parts.data_files()) == 1
    with pytest.raises(WriteError, match="upload refused"):
        writer.close()
    assert parts.data_files() == []


def test_a_file_that_can_not_be_deleted_is_no_error(parts: Parts) -> None:
    writer = parts.file_writer()
    writer.write_row_group([_rows(parts)])
    parts.data_files()[0].unlink()
    writer.abort()
