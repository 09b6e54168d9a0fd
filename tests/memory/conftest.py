"""Tables of every shape for the memory tests, made once each, and their measured scans."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

import icestream as ice
from tests.memory import measured_scan
from tests.support.delete_files import commit_position_deletes
from tests.support.process import ProcessReport, run_in_fresh_process
from tests.support.tables import (
    commit_files,
    data_file_paths,
    make_catalog,
    write_orc_file,
    write_parquet_file,
)

_NO_DICTIONARY = {"use_dictionary": False}


class Shapes:
    """Makes tables on demand: `place("events_parquet", 500_000)` is where that table is."""

    def __init__(self, catalog: SqlCatalog) -> None:
        self._catalog = catalog
        self._places: dict[tuple[Any, ...], tuple[str, str, str]] = {}

    def place(self, shape: str, *size: int) -> tuple[str, str, str]:
        """Return database, warehouse and name of the table of this shape and size."""
        if (shape, *size) not in self._places:
            name = "_".join(map(str, (f"db.{shape}", *size)))
            getattr(self, f"_{shape}")(name, *size)
            database = self._catalog.properties["uri"].removeprefix("sqlite:///")
            warehouse = self._catalog.properties["warehouse"]
            self._places[(shape, *size)] = (database, warehouse, name)
        return self._places[(shape, *size)]

    def table(self, place: tuple[str, str, str]) -> Table:
        """Open the table at a place."""
        return self._catalog.load_table(place[2])

    def _create(self, name: str, schema: pa.Schema) -> Table:
        return self._catalog.create_table(name, schema)

    def _events_parquet(self, name: str, rows: int) -> None:
        events = _events(rows)
        table = self._create(name, events.schema)
        # As Iceberg Java writes: no dictionary where it does not pay.
        commit_files(table, [write_parquet_file(table, events, use_dictionary=["customer"])])

    def _events_orc(self, name: str, rows: int) -> None:
        events = _events(rows)
        table = self._create(name, events.schema)
        commit_files(table, [write_orc_file(table, events, compression="zstd")])

    def _one_row_group(self, name: str, megabytes: int) -> None:
        numbers = _numbers(megabytes * 1_000_000 // 32, 4)
        table = self._create(name, numbers.schema)
        rows = numbers.num_rows
        commit_files(
            table, [write_parquet_file(table, numbers, row_group_rows=rows, **_NO_DICTIONARY)]
        )

    def _one_orc_file(self, name: str, megabytes: int) -> None:
        numbers = _numbers(megabytes * 1_000_000 // 32, 4)
        table = self._create(name, numbers.schema)
        commit_files(table, [write_orc_file(table, numbers)])

    def _files(self, name: str, count: int, columns: int, file_rows: int, group_rows: int) -> None:
        """The same file many times over, as far as a reader can tell."""
        numbers = _numbers(file_rows, columns)
        table = self._create(name, numbers.schema)
        first = write_parquet_file(table, numbers, row_group_rows=group_rows, **_NO_DICTIONARY)
        commit_files(table, [_copy(first, number) for number in range(count)])

    def _deleted_half(self, name: str, rows: int) -> None:
        """One file, every other row of which is deleted by position."""
        numbers = pa.table({"id": np.arange(rows)})
        properties = {"format-version": "2", "write.delete.mode": "merge-on-read"}
        odd = numbers.append_column("odd", pa.array(np.arange(rows) % 2))
        table = self._catalog.create_table(name, odd.schema, properties=properties)
        ice.append(table, odd)
        ice.delete(table, "odd = 1")

    def _narrow(self, name: str) -> None:
        self._files(name, 8, 2, 1_500_000, 500_000)

    def _wide(self, name: str) -> None:
        self._files(name, 4, 200, 30_000, 30_000)

    def _deletes(self, name: str, files: int) -> None:
        """A tenth of the rows of each file is deleted, by delete files of their own."""
        self._files(name, files, 2, 250_000, 250_000)
        table = self._catalog.load_table(name)
        commit_position_deletes(
            table, {path: range(0, 250_000, 10) for path in data_file_paths(table)}
        )

    def _nested(self, name: str) -> None:
        rows = 400_000
        random = np.random.default_rng(2)
        offsets = np.arange(0, 4 * rows + 1, 4)
        inner = {
            "x": random.integers(0, 2**62, 4 * rows),
            "name": pa.array(random.integers(0, 2**40, 4 * rows)).cast(pa.string()),
        }
        points = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()),
            pa.StructArray.from_arrays([pa.array(v) for v in inner.values()], names=list(inner)),
        )
        nested = pa.table({"id": pa.array(range(rows), pa.int64()), "points": points})
        table = self._create(name, nested.schema)
        commit_files(
            table, [write_parquet_file(table, nested, row_group_rows=200_000, **_NO_DICTIONARY)]
        )

    def _texts(self, name: str) -> None:
        """Texts of a few bytes first, of a hundred kilobytes last, in one row group."""
        random = np.random.default_rng(5)
        short = [f"text {i}" for i in range(200_000)]
        long = [random.bytes(50_000).hex() for _ in range(1_500)]
        rows = pa.table({"id": range(len(short) + len(long)), "text": short + long})
        rows = rows.cast(pa.schema([("id", pa.int64()), ("text", pa.large_string())]))
        table = self._create(name, rows.schema)
        # The writer looks at a page's size after each batch: pages of about 1 MB.
        options = {"write_batch_size": 10, **_NO_DICTIONARY}
        commit_files(table, [write_parquet_file(table, rows, **options)])


def _events(rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    moments = 1_700_000_000_000_000 + np.sort(random.integers(0, 10**12, rows))
    customers = pa.array([f"customer-{i:05}" for i in range(5_000)])
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "price": pa.array(random.random(rows)),
            "customer": customers.take(pa.array(random.integers(0, 5_000, rows))),
            "paid": pa.array(random.random(rows) < 0.5),
            "at": pa.array(moments).cast(pa.timestamp("us")),
        }
    )


def _numbers(rows: int, columns: int) -> pa.Table:
    random = np.random.default_rng(4)
    return pa.table({f"c{i}": random.integers(0, 2**62, rows) for i in range(columns)})


def _copy(data_file: DataFile, number: int) -> DataFile:
    path = data_file.file_path.replace(".parquet", f"-{number}.parquet")
    shutil.copy(data_file.file_path.removeprefix("file://"), path.removeprefix("file://"))
    copied = DataFile.from_args(
        content=data_file.content,
        file_path=path,
        file_format=data_file.file_format,
        partition=data_file.partition,
        record_count=data_file.record_count,
        file_size_in_bytes=data_file.file_size_in_bytes,
    )
    copied.spec_id = data_file.spec_id
    return copied


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shapes]:
    directory: Path = tmp_path_factory.mktemp("memory")
    catalog = make_catalog(directory)
    yield Shapes(catalog)
    catalog.close()
    shutil.rmtree(directory)  # Hundreds of MB, which pytest would keep for three runs.


def measured(place: tuple[str, str, str], **options: Any) -> ProcessReport:
    """Scan a table in a fresh process and measure it."""
    report = run_in_fresh_process(measured_scan.stream, place, options)
    assert report.result["finished"]
    assert report.result["allocator"] == "jemalloc"
    return report
