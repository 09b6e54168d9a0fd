"""The orders of the demo."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from icestream.cli.demo.order_files import DAYS, make_order_files


def test_each_day_has_orders_and_later_days_have_changes(tmp_path: Path) -> None:
    rows: list[int] = []
    files = make_order_files(tmp_path, 1003, on_rows=rows.append)
    orders, changes = (pq.read_table(tmp_path / name) for name in ("orders", "changes"))
    assert sorted(orders["order_id"].to_pylist()) == list(range(1003))
    assert files.orders == orders.num_rows == 1003
    assert files.changes == changes.num_rows
    assert files.files == DAYS + DAYS - 1
    assert rows[-1] == orders.num_rows + changes.num_rows
    assert set(changes["op"].to_pylist()) <= {"U", "D"}


def test_the_rows_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_order_files(tmp_path / name, 1000)
    first, second = (pq.read_table(tmp_path / name / "changes") for name in ("a", "b"))
    assert first.equals(second)
