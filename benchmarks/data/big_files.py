"""Parquet files of any total size, generated part by part. The rows are the same every time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PART_ROWS = 1_000_000
# Size of a row in a file. Eleven measures and the customer do not compress.
_ROW_BYTES = 109
_MEASURES = 11
_COUNTRIES = ("DE", "DK", "FI", "FR", "NL", "NO", "PL", "SE")
_STATUSES = ("new", "paid", "sent", "returned")
_NOTES = tuple(f"note {number} of a thousand, as people write them" for number in range(1000))
_FIRST_SECOND = 1_700_000_000
CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class BigFiles:
    """Orders with 20 columns and ids from 0, in files of up to a million rows.

    Args:
        folder: Folder for the files.
        total_bytes: Approximate size of all files.
    """

    folder: Path
    total_bytes: int

    @property
    def rows(self) -> int:
        """Number of orders."""
        return max(100, self.total_bytes // _ROW_BYTES)

    @property
    def changed_from(self) -> int:
        """First id of the changes, which are the newest orders and some additional ones."""
        return self.rows - self.changed_rows

    @property
    def changed_rows(self) -> int:
        """Number of rows that change: one in a hundred."""
        return self.rows // 100

    @property
    def new_rows(self) -> int:
        """Number of rows that the changes add."""
        return self.rows // 1000

    def make(self) -> int:
        """Write the files that do not exist yet.

        Returns:
            The size of the orders in bytes.

        Memory: one part at a time, about 200 MB.
        """
        orders = self.folder / "orders"
        orders.mkdir(parents=True, exist_ok=True)
        for number, first in enumerate(range(0, self.rows, PART_ROWS)):
            count = min(PART_ROWS, self.rows - first)
            _write(orders / f"part-{number:05}.parquet", _part(number, first, count))
        changes = self.folder / "changes"
        changes.mkdir(exist_ok=True)
        start, end = self.changed_from, self.rows + self.new_rows
        for number, first in enumerate(range(start, end, PART_ROWS)):
            part = _part(10**6 + number, first, min(PART_ROWS, end - first))
            status = pa.array([CHANGED] * part.num_rows)
            part = part.set_column(part.column_names.index("status"), "status", status)
            _write(changes / f"part-{number:05}.parquet", part)
        return sum(path.stat().st_size for path in orders.iterdir())


def _part(number: int, first: int, count: int) -> pa.Table:
    random = np.random.default_rng(number)
    ids = np.arange(first, first + count)
    seconds = _FIRST_SECOND + ids // 50
    columns: dict[str, pa.Array] = {
        "id": pa.array(ids),
        "customer": pa.array(random.integers(0, 10**12, count)),
        "at": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
        "day": pa.array((seconds // 86400).astype("int32"), pa.date32()),
        "country": _texts(random, _COUNTRIES, count),
        "status": _texts(random, _STATUSES, count),
        "note": _texts(random, _NOTES, count),
        "paid": pa.array(random.integers(0, 2, count).astype(bool)),
        "quantity": pa.array(random.integers(1, 100, count, np.int32)),
    }
    for measure in range(_MEASURES):
        columns[f"measure_{measure}"] = pa.array(random.random(count))
    return pa.table(columns)


def _texts(random: np.random.Generator, texts: tuple[str, ...], count: int) -> pa.Array:
    indices = pa.array(random.integers(0, len(texts), count, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts)).cast(pa.string())


def _write(path: Path, part: pa.Table) -> None:
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}")
    texts = [name for name in part.column_names if pa.types.is_string(part.schema.field(name).type)]
    pq.write_table(part, unfinished, row_group_size=250_000, use_dictionary=texts)
    unfinished.rename(path)
