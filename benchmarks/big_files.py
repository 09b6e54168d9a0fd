"""Parquet files of any size in all, made part by part: the same rows every time, cheap to make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PART_ROWS = 1_000_000
# What a row takes in a file: eleven measures and a customer that do not compress, and the rest.
_ROW_BYTES = 109
_MEASURES = 11
_COUNTRIES = ("DE", "DK", "FI", "FR", "NL", "NO", "PL", "SE")
_STATUSES = ("new", "paid", "sent", "returned")
_NOTES = tuple(f"note {number} of a thousand, as people write them" for number in range(1000))
_FIRST_SECOND = 1_700_000_000
CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class BigFiles:
    """Orders of 20 columns, with ids from 0 on, in files of up to a million rows.

    Args:
        folder: Where the files are.
        total_bytes: How large they are in all, roughly.
    """

    folder: Path
    total_bytes: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return max(100, self.total_bytes // _ROW_BYTES)

    @property
    def changed_from(self) -> int:
        """The first id among the changes: they are the newest orders, and some that are new."""
        return self.rows - self.changed_rows

    @property
    def changed_rows(self) -> int:
        """How many rows change: one in a hundred."""
        return self.rows // 100

    @property
    def new_rows(self) -> int:
        """How many rows the changes have that are not there yet."""
        return self.rows // 1000

    def make(self) -> int:
        """Write what is not there.

        Returns:
            The bytes of the orders.

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
