"""Rolling files: near their target whatever the data, and gone after an abort."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from icestream.errors import WriteError, WriterClosedError
from icestream.write.new_file import NewFile
from icestream.write.parquet.parquet_writer import ParquetFileWriter
from icestream.write.parquet.rolling_writer import RollingWriter
from icestream.write.parquet.row_buffer import RowBuffer
from tests.support.tables import make_catalog
from tests.support.writing import Parts, read_back, row_groups

_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "number", DoubleType()),
    NestedField(3, "text", StringType()),
)
_Columns = dict[str, object]


def _mixed(first: int, rows: int) -> _Columns:
    random = np.random.default_rng(first)
    texts = pa.array([f"customer {i}" for i in range(500)])
    return {
        "id": np.arange(first, first + rows),
        "number": random.random(rows),
        "text": texts.take(pa.array(random.integers(0, 500, rows))),
    }


def _repeated(first: int, rows: int) -> _Columns:
    ids = np.arange(first, first + rows)
    return {"id": ids, "number": ids // 1000 * 1.0, "text": ["same"] * rows}


def _random_text(first: int, rows: int) -> _Columns:
    random = np.random.default_rng(first)
    text = pa.array(random.integers(0, 2**62, rows)).cast(pa.string())
    return {"id": np.arange(first, first + rows), "number": random.random(rows), "text": text}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


def _parts(catalog: SqlCatalog, target_bytes: int, **properties: str) -> Parts:
    size = {"write.target-file-size-bytes": str(target_bytes)}
    return Parts(catalog.create_table("db.t", _SCHEMA, properties={**size, **properties}))


def _written(
    parts: Parts,
    make: Callable[[int, int], _Columns],
    *,
    rows: int,
    batch_rows: int,
    row_group_bytes: int,
) -> list[NewFile]:
    writer, buffer = parts.rolling_writer(row_group_bytes=row_group_bytes), RowBuffer()
    for first in range(0, rows, batch_rows):
        buffer.append(parts.batch(make(first, batch_rows)))
        while buffer.bytes >= (wanted := writer.next_group_bytes()):
            writer.write_row_group(buffer.take(wanted))
    while buffer.rows:
        writer.write_row_group(buffer.take(writer.next_group_bytes()))
    return writer.close()


@pytest.mark.parametrize("make", [_mixed, _repeated, _random_text])
@pytest.mark.parametrize(
    ("target_bytes", "row_group_bytes"),
    [(300_000, 50_000_000), (300_000, 200_000), (1_500_000, 1_000_000), (1_000_000, 900_000)],
    ids=["less than a group", "many groups", "several groups", "about a group"],
)
def test_files_come_within_15_percent_of_the_target(
    catalog: SqlCatalog,
    make: Callable[[int, int], _Columns],
    target_bytes: int,
    row_group_bytes: int,
) -> None:
    rows = 3_000_000 if make is _repeated else 600_000
    parts = _parts(catalog, target_bytes)
    files = _written(parts, make, rows=rows, batch_rows=20_000, row_group_bytes=row_group_bytes)
    *full, last = files
    assert len(full) >= 1
    assert [f.bytes / target_bytes for f in full] == pytest.approx([1] * len(full), abs=0.15)
    assert last.bytes <= 1.15 * target_bytes
    assert sum(file.rows for file in files) == rows


@pytest.mark.parametrize("distinct", ["many", "few"])
def test_bloom_filters_count_towards_the_file(catalog: SqlCatalog, distinct: str) -> None:
    enabled = "write.parquet.bloom-filter-enabled.column."
    parts = _parts(catalog, 1_000_000, **{enabled + "id": "true", enabled + "text": "true"})
    make = _random_text if distinct == "many" else _mixed
    files = _written(parts, make, rows=800_000, batch_rows=20_000, row_group_bytes=1 << 30)
    # What a filter of few values shrinks to is known only after the first file.
    *full, _ = files[1:]
    assert [f.bytes / 1_000_000 for f in full] == pytest.approx([1] * len(full), abs=0.15)


def test_rows_keep_their_order_over_files_and_row_groups(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 300_000)
    files = _written(parts, _mixed, rows=200_000, batch_rows=7_000, row_group_bytes=400_000)
    assert len(files) > 3
    ids = read_back(files)["id"].to_numpy()
    assert (ids == np.arange(len(ids))).all()


def test_no_row_group_is_larger_than_allowed(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 10_000_000)
    writer, sizes = parts.rolling_writer(row_group_bytes=500_000), []
    for first in range(0, 500_000, 10_000):
        sizes.append(writer.next_group_bytes())
        writer.write_row_group([parts.batch(_mixed(first, 10_000))])
    writer.abort()
    assert max(sizes) <= 500_000


def test_the_first_group_takes_at_most_a_quarter_of_the_target(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 1_000_000)
    assert parts.rolling_writer(row_group_bytes=1 << 30).next_group_bytes() == 250_000
    assert parts.rolling_writer(row_group_bytes=100_000).next_group_bytes() == 100_000


def test_no_file_is_left_almost_empty_because_the_one_before_was_not_quite_full(
    catalog: SqlCatalog,
) -> None:
    parts = _parts(catalog, 1_000_000)
    files = _written(parts, _mixed, rows=500_000, batch_rows=20_000, row_group_bytes=300_000)
    for file in files[:-1]:
        rows = row_groups(file)
        assert min(rows) > 0.2 * max(rows)


def test_a_file_is_finished_early_when_it_holds_too_much_until_then(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 10_000_000)
    group_bytes = parts.settings.tail_bytes(group_rows=1_000)
    writer = RollingWriter(
        parts.file_writer,
        target_file_bytes=10_000_000,
        row_group_bytes=1 << 20,
        max_tail_bytes=2 * group_bytes,
    )
    for _ in range(7):
        writer.write_row_group([parts.batch(_mixed(0, 1_000))])
    assert [len(row_groups(file)) for file in writer.close()] == [3, 3, 1]


def test_a_writer_without_rows_makes_no_file(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 1_000_000)
    assert parts.rolling_writer().close() == []
    writer = parts.rolling_writer()
    writer.write_row_group([])
    assert writer.close() == []
    assert parts.data_files() == []


def test_abort_deletes_finished_and_unfinished_files(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 100_000)
    writer = parts.rolling_writer()
    for first in range(0, 100_000, 10_000):
        writer.write_row_group([parts.batch(_mixed(first, 10_000))])
    assert len(parts.data_files()) > 3
    writer.abort()
    writer.abort()
    assert parts.data_files() == []


def test_abort_after_close_keeps_the_files(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 100_000)
    writer = parts.rolling_writer()
    writer.write_row_group([parts.batch(_mixed(0, 10_000))])
    files = writer.close()
    writer.abort()
    assert read_back(files).num_rows == 10_000


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_writer_that_has_ended_takes_nothing_more(catalog: SqlCatalog, end: str) -> None:
    parts = _parts(catalog, 100_000)
    writer = parts.rolling_writer()
    getattr(writer, end)()
    with pytest.raises(WriterClosedError):
        writer.write_row_group([parts.batch(_mixed(0, 10))])
    with pytest.raises(WriterClosedError):
        writer.close()


def test_a_failed_close_deletes_every_file(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, 100_000)
    opened: list[ParquetFileWriter] = []

    def open_file() -> ParquetFileWriter:
        opened.append(parts.file_writer())
        return opened[-1]

    writer = RollingWriter(open_file, target_file_bytes=100_000, row_group_bytes=1 << 20)
    for first in range(0, 50_000, 10_000):
        writer.write_row_group([parts.batch(_mixed(first, 10_000))])
    writer.write_row_group([parts.batch(_mixed(0, 10))])
    assert len(parts.data_files()) == len(opened) > 2
    opened[-1]._stream.close()  # As if storage were gone.
    with pytest.raises(WriteError):
        writer.close()
    assert parts.data_files() == []
