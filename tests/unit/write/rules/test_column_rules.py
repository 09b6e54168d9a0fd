"""Rules of a load: a row filter, column selection, renames, casts and constants."""

from __future__ import annotations

import datetime as dt
import pickle
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

import icestream as ice
from icestream.write.rules.column_rules import ColumnRules, SelectedColumn, constant
from icestream.write.sources.arrow_source import open_source

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


def test_columns_are_selected_in_the_order_of_the_rules() -> None:
    batch = _convert(SelectedColumn("country", "country"), SelectedColumn("id", "id"))
    assert batch.schema.names == ["country", "id"]
    assert batch.column(1).to_pylist() == [1, 2, None, 4]


def test_columns_beside_the_selected_ones_may_have_any_type() -> None:
    schema = pa.schema([("id", pa.int64()), ("keys", pa.list_(pa.uuid()))])
    rules = ColumnRules((SelectedColumn("id", "id"),), None)
    assert rules.schema(schema) == pa.schema([("id", pa.int64())])


def test_columns_are_renamed_cast_and_filled_with_constants() -> None:
    batch = _convert(
        SelectedColumn("price", "amount", pa.decimal128(10, 2)),
        SelectedColumn("key", "id", pa.string()),
        SelectedColumn("origin", None, None, "file"),
        SelectedColumn("day", None, pa.date32(), "2026-01-02"),
        SelectedColumn("nothing", None, pa.int32(), None),
    )
    assert batch.to_pylist()[:2] == [
        {
            "price": Decimal("1.50"),
            "key": "1",
            "origin": "file",
            "day": dt.date(2026, 1, 2),
            "nothing": None,
        },
        {
            "price": Decimal("0.25"),
            "key": "2",
            "origin": "file",
            "day": dt.date(2026, 1, 2),
            "nothing": None,
        },
    ]
    assert batch.column("price").to_pylist()[3] is None
    assert batch.schema.field("nothing").type == pa.int32()


def test_one_column_may_be_loaded_twice_and_a_field_of_a_struct_as_a_column() -> None:
    batch = _convert(
        SelectedColumn("a", "id"),
        SelectedColumn("b", "id", pa.int32()),
        SelectedColumn("city", "address.city"),
        SelectedColumn("zip", "address.zip", pa.string()),
        SelectedColumn("address", "address"),
    )
    assert batch.column("a").to_pylist() == batch.column("b").to_pylist()
    assert batch.column("city").to_pylist() == ["Oslo", "Umeå", None, None]
    assert batch.column("zip").to_pylist() == ["1", "2", None, None]
    assert batch.column("address").to_pylist() == _ROWS.column("address").to_pylist()


def test_the_filter_applies_before_casts() -> None:
    batch = _convert(SelectedColumn("amount", "amount", pa.int32()), where="amount > 2")
    assert batch.to_pydict() == {"amount": [3]}


def test_rules_know_their_schema_and_the_columns_that_they_need() -> None:
    rules = ColumnRules((SelectedColumn("b", "address.zip"),), "id > 1")
    ruled = rules.over(_ROWS.schema)
    assert ruled.schema == rules.schema(_ROWS.schema) == pa.schema([("b", pa.int64())])
    assert ruled.needed == ["id", "address"]
    few = _ROWS.select(["id", "address"])
    assert ruled.convert(few).to_pydict() == {"b": [2, None]}
    constants = ColumnRules((SelectedColumn("b", None, None, 1),))
    assert constants.over(_ROWS.schema).needed == []


def test_rules_without_conditions_change_nothing() -> None:
    assert not ColumnRules()
    source = open_source(pa.table(_ROWS))
    assert ColumnRules().apply(source) is source
    assert ColumnRules().schema(_ROWS.schema) is _ROWS.schema


def test_empty_batches_stay_empty_and_are_left_out_of_streams() -> None:
    rules = ColumnRules(
        (SelectedColumn("id", "id", pa.string()), SelectedColumn("c", None, pa.uuid(), None)),
        "id > 2",
    )
    empty = rules.over(_ROWS.schema).convert(_ROWS.slice(0, 0))
    assert (empty.num_rows, empty.schema) == (0, rules.schema(_ROWS.schema))
    stream = open_source([_ROWS.slice(0, 2), _ROWS.slice(0, 0), _ROWS])
    assert [batch.num_rows for batch in rules.apply(stream)] == [1]


def test_rules_travel_to_other_processes() -> None:
    rules = ColumnRules(
        (SelectedColumn("p", "amount", pa.decimal128(5, 2)), SelectedColumn("c", None, None, "x")),
        "amount is not null",
    )
    same = pickle.loads(pickle.dumps(rules))
    assert same == rules
    assert same.over(_ROWS.schema).convert(_ROWS).num_rows == 3


def test_constants_are_checked() -> None:
    key = uuid.uuid4()
    assert constant(SelectedColumn("a", None, pa.uuid(), str(key))).to_pylist() == [key]
    assert constant(SelectedColumn("a", None, pa.decimal128(4, 2), 1.5))[0].as_py() == Decimal(
        "1.5"
    )
    with pytest.raises(ice.InvalidDataError, match="'abc', which int32 can't hold"):
        constant(SelectedColumn("a", None, pa.int32(), "abc"))
    with pytest.raises(ice.InvalidArgumentError, match="give its type"):
        constant(SelectedColumn("a", None, None, None))
    with pytest.raises(ice.InvalidArgumentError, match="the value"):
        constant(SelectedColumn("a", None, None, 2**70))


def test_a_uuid_constant_fills_every_row() -> None:
    key = uuid.uuid4()
    batch = _convert(SelectedColumn("key", None, pa.uuid(), str(key)))
    assert batch.column("key").to_pylist() == [key] * 4
