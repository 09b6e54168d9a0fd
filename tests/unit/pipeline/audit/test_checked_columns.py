"""Columns that tests name, at any depth."""

from __future__ import annotations

import pyarrow as pa
import pytest

import icestream as ice
from icestream.pipeline.audit.checked_columns import (
    accepted,
    column_of,
    column_path,
    column_type,
    refuse_nested,
)
from icestream.pipeline.request.checks import Check

_INNER = pa.struct([("id", pa.int32()), ("deep", pa.struct([("x", pa.string())]))])
_SCHEMA = pa.schema([("id", pa.int64()), ("a.b", pa.int64()), ("nested", _INNER)])


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("id", ("id",), pa.int64()),
        ("a.b", ("a.b",), pa.int64()),
        ("nested.id", ("nested", "id"), pa.int32()),
        ("nested.deep.x", ("nested", "deep", "x"), pa.string()),
    ],
)
def test_dots_lead_to_fields_unless_a_column_has_the_name(
    name: str, path: tuple[str, ...], kind: pa.DataType
) -> None:
    assert column_path(name, _SCHEMA) == path
    assert column_type(name, _SCHEMA) == kind


@pytest.mark.parametrize("name", ["ids", "nested.nope", "id.x", "nope.x"])
def test_a_column_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=f"names the column '{name}'"):
        column_path(name, _SCHEMA)


def test_a_field_of_a_null_struct_is_null() -> None:
    batch = pa.record_batch(
        {"nested": pa.array([{"id": 1}, None], pa.struct([("id", pa.int32())]))}
    )
    assert column_of(batch, ("nested", "id")).to_pylist() == [1, None]


def test_accepted_values_have_the_type_of_the_column() -> None:
    check = Check.parse({"accepted_values": {"column": "nested.id", "values": [1, 2]}})
    assert accepted(check, _SCHEMA).equals(pa.array([1, 2], pa.int32()))
    wrong = Check.parse({"accepted_values": {"column": "id", "values": ["many"]}})
    with pytest.raises(ice.InvalidArgumentError, match="accepted_values of 'id'"):
        accepted(wrong, _SCHEMA)


def test_a_nested_column_is_no_key() -> None:
    refuse_nested(Check.parse({"unique": ["id", "nested.id"]}), _SCHEMA)
    with pytest.raises(ice.InvalidArgumentError, match=r"as in 'nested\.id'"):
        refuse_nested(Check.parse({"unique": ["id", "nested"]}), _SCHEMA)
