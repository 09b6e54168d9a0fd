"""Filters over the columns of a stream."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import icestream as ice
from icestream.write.rules.column_rules import ColumnRules, SelectedColumn

_ROWS = pa.record_batch(
    {
        "id": [1, 2, None, 4],
        "amount": [1.5, 0.25, 3.0, None],
        "country": ["NO", "SE", None, "NO"],
        "address": [{"city": "Oslo", "zip": 1}, {"city": "Umeå", "zip": 2}, None, {"city": None}],
    }
)


def _convert(*select: SelectedColumn, where: str | None = None) -> pa.RecordBatch:
    return ColumnRules(select or None, where).over(_ROWS.schema).convert(_ROWS)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("id > 1", [2, 4]),
        ("country = 'NO'", [1, 4]),
        ("country != 'NO'", [2]),
        ("country not in ('NO')", [2]),
        ("not country = 'NO'", [2]),
        ("id is null", [None]),
        ("amount >= 0.25 and id < 9", [1, 2]),
        ("address.city = 'Oslo' or amount = 3.0", [1, None]),
        ("address.zip is not null", [1, 2]),
        ("id > 100", []),
    ],
)
def test_a_filter_keeps_rows_for_which_it_is_true(where: str, ids: list[Any]) -> None:
    assert _convert(where=where).column("id").to_pylist() == ids
    renamed = _convert(SelectedColumn("key", "id"), where=where)
    assert renamed.to_pydict() == {"key": ids}


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (ColumnRules((SelectedColumn("a", "ammount"),)), "did you mean 'amount'"),
        (ColumnRules((SelectedColumn("a", "address.town"),)), "select names 'address.town'"),
        (ColumnRules((SelectedColumn("a", "id.x"),)), "has no such column"),
        (ColumnRules(None, "contry = 'NO'"), "did you mean 'country'"),
        (ColumnRules(None, "address.cty = 'NO'"), "did you mean 'address.city'"),
    ],
)
def test_unknown_columns_are_named_with_the_nearest_one(rules: ColumnRules, message: str) -> None:
    with pytest.raises(ice.UnknownColumnError, match=message):
        rules.over(_ROWS.schema)


def test_a_filter_with_a_value_of_another_type_does_not_fit() -> None:
    with pytest.raises(ice.InvalidArgumentError, match="the filter does not fit: 'id' is a long"):
        ColumnRules(None, "id = 'x'").over(_ROWS.schema)


def test_filters_see_the_values_of_dictionaries_and_uuids() -> None:
    key = uuid.uuid4()
    batch = pa.record_batch(
        {
            "flag": pa.array(["a", "b", None]).dictionary_encode(),
            "key": pa.array([key.bytes, None, uuid.uuid4().bytes], pa.uuid()),
        }
    )
    flagged = ColumnRules(None, "flag = 'b'").over(batch.schema).convert(batch)
    assert flagged.num_rows == 1
    keyed = ColumnRules(None, f"key = '{key}'").over(batch.schema).convert(batch)
    assert keyed.column("key").to_pylist() == [key]
    cast = ColumnRules((SelectedColumn("flag", "flag", pa.string()),)).over(batch.schema)
    assert cast.convert(batch).to_pydict() == {"flag": ["a", "b", None]}
