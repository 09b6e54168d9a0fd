"""Generates files with orders of several days and their changes, as another system exports them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DAYS = 5
_FIRST_DAY = np.datetime64("2026-11-02")
_DAY_MICROSECONDS = 86_400_000_000
_CHANGED_SHARE = 0.08
_LATE_SHARE = 0.005
_COUNTRIES = ("AR", "BR", "DE", "FR", "IN", "JP", "KE", "NO", "PE", "US")
_STREETS = ("Harbour Road", "Mill Lane", "Station Street", "Old Market", "Forest Way", "Bridge Row")
_TOWNS = ("Northfield", "Lakeside", "Eastbury", "Highgate", "Westerholm", "Southport", "Riverton")
_NOTES = (
    "leave the parcel at the back door, and tell the neighbour on the left that it has come",
    "the bell is quiet: ring twice, and wait for a moment, as it takes some time to come down",
    "this is a present, so please put no invoice into the parcel; it goes to us by mail instead",
    "call before delivery, at least half an hour ahead, and do not leave it outside the house",
    "",
    "deliver after five in the afternoon, or on a Saturday; on other days nobody is at home",
)
_CHANGES = ("paid", "shipped", "delivered", "cancelled")


@dataclass(frozen=True, slots=True)
class OrderFiles:
    """The generated files.

    Attributes:
        orders: Number of orders.
        changes: Number of changes.
        files: Number of files.
        bytes: Size of the files.
    """

    orders: int
    changes: int
    files: int
    bytes: int


def make_order_files(
    folder: Path, rows: int, *, on_rows: Callable[[int], None] = lambda rows: None
) -> OrderFiles:
    """Write a file of orders for each day, and a file of changes for each day except the first.

    A change has the whole new row and `op`: `U`, or `D` for a test order that is deleted. Some
    orders appear only in the changes. The rows are the same every time.

    Args:
        folder: Folder in which to create `orders` and `changes`.
        rows: Number of orders of all days.
        on_rows: Called with the number of rows written so far.

    Memory: the rows of three days.
    """
    random = np.random.default_rng(7)
    for name in ("orders", "changes"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    recent: list[pa.Table] = []
    written = changed = first_id = 0
    late_id = rows
    for day in range(DAYS):
        count = rows // DAYS + (day < rows % DAYS)
        orders = _orders(np.arange(first_id, first_id + count), day, random)
        first_id += count
        paths.append(_write(orders, folder / "orders" / f"{_date(day)}.parquet"))
        written += count
        if recent:
            late = _orders(np.arange(late_id, late_id + int(count * _LATE_SHARE)), day - 1, random)
            late_id += late.num_rows
            changes = _changes(recent, late, day, random)
            paths.append(_write(changes, folder / "changes" / f"{_date(day)}.parquet"))
            written += changes.num_rows
            changed += changes.num_rows
        recent = [*recent[-1:], orders]
        on_rows(written)
    return OrderFiles(rows, changed, len(paths), sum(path.stat().st_size for path in paths))


def _orders(ids: Any, day: int, random: np.random.Generator) -> pa.Table:
    count = len(ids)
    placed = _microseconds(day) + random.integers(0, _DAY_MICROSECONDS, count)
    house = pc.cast(pa.array(random.integers(1, 400, count)), pa.string())
    address = pc.binary_join_element_wise(
        house, _picked(_STREETS, count, random), _picked(_TOWNS, count, random), " "
    )
    parcel = pc.cast(pa.array(random.integers(10**14, 10**15, count)), pa.string())
    return pa.table(
        {
            "order_id": pa.array(ids, pa.int64()),
            "order_date": pa.array(np.full(count, _date(day)), pa.date32()),
            "customer_id": pa.array(random.integers(0, 10**6, count)),
            "country": _picked(_COUNTRIES, count, random),
            "status": pa.array(["placed"]).take(pa.array(np.zeros(count, np.int64))),
            "items": pa.array(random.integers(1, 9, count), pa.int32()),
            "price": pa.array(random.integers(199, 50_000, count) / 100),
            "placed_at": pa.array(placed, pa.timestamp("us", "UTC")),
            "changed_at": pa.array(placed, pa.timestamp("us", "UTC")),
            "address": address,
            "parcel": pc.binary_join_element_wise("parcel", parcel, "-"),
            "note": _picked(_NOTES, count, random),
        }
    )


def _changes(
    recent: list[pa.Table], late: pa.Table, day: int, random: np.random.Generator
) -> pa.Table:
    """Return some orders of earlier days with a new status, and the late orders."""
    shares = []
    for orders in recent:
        count = int(orders.num_rows * _CHANGED_SHARE)
        picked = np.sort(random.choice(orders.num_rows, count, replace=False))
        shares.append(orders.take(pa.array(picked)))
    rows = pa.concat_tables(shares)
    count = rows.num_rows
    changed_at = pa.array(
        _microseconds(day) + random.integers(0, _DAY_MICROSECONDS, count),
        pa.timestamp("us", "UTC"),
    )
    ops = np.where(random.random(count) < 0.01, "D", "U")
    rows = _with(rows, "status", _picked(_CHANGES, count, random))
    rows = _with(rows, "changed_at", changed_at).append_column("op", pa.array(ops, pa.string()))
    return pa.concat_tables(
        [rows, late.append_column("op", pa.array(["U"] * late.num_rows, pa.string()))]
    )


def _with(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(column), column, values)


def _picked(words: tuple[str, ...], count: int, random: np.random.Generator) -> pa.Array:
    return pa.array(words).take(pa.array(random.integers(0, len(words), count)))


def _date(day: int) -> Any:
    return _FIRST_DAY + np.timedelta64(day, "D")


def _microseconds(day: int) -> int:
    return int(_date(day).astype("datetime64[us]").astype(np.int64))


def _write(rows: pa.Table, path: Path) -> Path:
    pq.write_table(rows, path, row_group_size=250_000, compression="zstd", write_page_checksum=True)
    return path
