"""Tables of awkward shapes, made in processes of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from tests.support.catalogs import make_catalog
from tests.support.delete_files import commit_position_deletes
from tests.support.tables import commit_files, data_file_paths, write_parquet_file

MB = 1_000_000
_MANIFEST_FILES = 5_000
_FILE_ROWS = 10
_TOO_SMALL = "MemoryBudgetError"
_READ = ("scan", "load", "merge")  # The table; or its file, into another table.


@dataclass(frozen=True, slots=True)
class Shape:
    """What is made, and how it is read.

    Attributes:
        make: Makes the table, or the file to be loaded; returns how many rows it has.
        sizes: What `make` is given.
        small: The same for a run of seconds.
        verbs: What is done to it: "scan", "compact", "load" or "merge".
        options: Options of the scan.
        limit_bytes: The memory limit.
        refusal: An error that may be the answer, if it comes inside the limit.
    """

    make: Callable[..., int]
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    verbs: tuple[str, ...] = ("scan",)
    options: tuple[tuple[str, Any], ...] = ()
    limit_bytes: int = 64 * MB
    refusal: str | None = None


def long_strings(folder: Path, rows: int, length: int) -> int:
    """One long text, repeated: a file of some KB that decodes to a GB."""
    _write(folder, pa.table({"id": range(rows), "text": ["x" * length] * rows}))
    return rows


def position_deletes(folder: Path, positions: int) -> int:
    """Every second row of one file is deleted."""
    table = _write(folder, pa.table({"id": np.arange(2 * positions)}))
    commit_position_deletes(table, {data_file_paths(table)[0]: range(0, 2 * positions, 2)})
    return positions


def many_columns(folder: Path, columns: int, rows: int) -> int:
    """More columns than rows fit."""
    random = np.random.default_rng(1)
    numbers = pa.table({f"c{n}": random.integers(0, 2**62, rows) for n in range(columns)})
    _write(folder, numbers, use_dictionary=False)
    return rows


def many_row_groups(folder: Path, groups: int, columns: int) -> int:
    """A footer that is much larger than the rows."""
    numbers = pa.table({f"c{n}": np.arange(groups) for n in range(columns)})
    _write(folder, numbers, row_group_rows=1)
    return groups


def large_value(folder: Path, length: int) -> int:
    """A value that does not compress, among small ones."""
    random = np.random.default_rng(1)
    texts = ["a", random.bytes(length // 2).hex(), "b"]
    _write(folder, pa.table({"id": range(3), "text": texts}), use_dictionary=False)
    return len(texts)


def long_line(folder: Path, length: int) -> int:
    """A text file with one line of that length."""
    folder.mkdir(parents=True, exist_ok=True)
    make_catalog(folder).close()
    with open(folder / "lines.jsonl", "w") as file:
        file.write('{"id": 1, "text": "')
        for _ in range(length // 100_000):
            file.write("y" * 100_000)
        file.write('"}\n{"id": 2, "text": "short"}\n')
    return 2


def many_files(folder: Path, files: int, columns: int) -> int:
    """Entries of manifests with statistics; one file is there, and so are its rows."""
    schema = Schema(
        *(NestedField(n + 1, f"c{n}", LongType(), required=False) for n in range(columns))
    )
    folder.mkdir(parents=True, exist_ok=True)
    catalog = make_catalog(folder)
    table = catalog.create_table("db.t", schema)
    rows = pa.table({f"c{n}": np.arange(_FILE_ROWS) for n in range(columns)})
    first = write_parquet_file(table, rows)
    commit_files(table, [first])
    for begin in range(1, files, _MANIFEST_FILES):
        many = range(begin, min(files, begin + _MANIFEST_FILES))
        commit_files(table, [_described(first, number, columns) for number in many])
    catalog.close()
    return _FILE_ROWS


def _described(first: DataFile, number: int, columns: int) -> DataFile:
    """A file that is in a manifest only, with rows that a filter rules out."""
    ids = range(1, columns + 1)
    low, high = (value.to_bytes(8, "little") for value in (1_000 + number, 2_000 + number))
    described = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{first.file_path}-{number}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=_FILE_ROWS,
        file_size_in_bytes=first.file_size_in_bytes,
        column_sizes=dict.fromkeys(ids, 100),
        value_counts=dict.fromkeys(ids, _FILE_ROWS),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict.fromkeys(ids, low),
        upper_bounds=dict.fromkeys(ids, high),
        split_offsets=[4],
    )
    described.spec_id = first.spec_id
    return described


def _write(folder: Path, rows: pa.Table, **options: Any) -> Table:
    folder.mkdir(parents=True, exist_ok=True)
    catalog = make_catalog(folder)
    table = catalog.create_table("db.t", rows.schema)
    commit_files(table, [write_parquet_file(table, rows, **options)])
    catalog.close()
    return table


SHAPES: dict[str, Shape] = {
    "long strings": Shape(
        long_strings, (2_000, 500_000), (400, 500_000), _READ, limit_bytes=32 * MB
    ),
    "deletes": Shape(position_deletes, (5_000_000,), (400_000,), ("scan", "compact")),
    "columns": Shape(many_columns, (3_000, 4_000), (400, 2_000), _READ, refusal=_TOO_SMALL),
    "row groups": Shape(many_row_groups, (50_000, 10), (2_000, 5), _READ, refusal=_TOO_SMALL),
    "large value": Shape(large_value, (50 * MB,), (5 * MB,), _READ, refusal=_TOO_SMALL),
    "text line": Shape(long_line, (100 * MB,), (10 * MB,), ("load",), refusal=_TOO_SMALL),
    "files": Shape(many_files, (50_000, 50), (1_000, 50), options=(("where", "c0 < 500"),)),
}
