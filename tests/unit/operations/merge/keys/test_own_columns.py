"""Columns that decide which of several rows is the last."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.merges import filled, found, stream


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["b", "c", "a"]),
        pa.array(["b", "c", "a"]).dictionary_encode(),
        pa.array(["b", "c", "a"], pa.string_view()),
        pa.array([1.0, float("nan"), None]),
        pa.array([False, True, False]),
        pa.array([Decimal("1.5"), Decimal("2.5"), Decimal("0.5")]),
        pa.array([b"b", b"c", b"a"]),
        pc.run_end_encode(pa.array([1, 3, 2])),
        pa.array([dt.date(2024, 1, n) for n in (2, 3, 1)]),
        pa.array([b"b" * 16, b"c" * 16, b"a" * 16], pa.binary(16)),
    ],
    ids=lambda values: str(values.type),
)
def test_it_may_be_of_any_type_with_an_order(catalog: SqlCatalog, values: pa.Array) -> None:
    table = filled(catalog, [(1, 1, "a")])
    rows = stream([(1, 1, "first"), (1, 1, "second"), (1, 1, "third")], at=values)
    ice.merge(table, rows, on="id", on_duplicate="last", last_by="at")
    assert found(table) == [(1, 1, "second")]


@pytest.mark.parametrize("values", [[[1], [2]], [{"a": 1}, {"a": 2}]], ids=["list", "struct"])
def test_a_column_without_an_order_can_not(catalog: SqlCatalog, values: list[Any]) -> None:
    table = filled(catalog, [(1, 1, "a")])
    rows = stream([(1, 1, "first"), (1, 1, "second")], at=pa.array(values))
    with pytest.raises(ice.InvalidArgumentError, match="last_by"):
        ice.merge(table, rows, on="id", on_duplicate="last", last_by="at")
