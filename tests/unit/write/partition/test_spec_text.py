"""Texts become partition specs and sort orders, or errors that name the text."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.write.partition.spec_text import partition_spec, sort_order

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "ts", TimestamptzType()),
    NestedField(4, "price", DoubleType()),
    NestedField(5, "tags", ListType(6, StringType())),
    NestedField(7, "home", StructType(NestedField(8, "city", StringType()))),
    NestedField(9, "odd name`", LongType()),
    NestedField(10, "ts_hour", LongType()),
)


def _told(spec: PartitionSpec) -> list[tuple[int, str, str]]:
    return [(field.source_id, str(field.transform), field.name) for field in spec.fields]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("region", (2, "identity", "region")),
        ("identity(region)", (2, "identity", "region")),
        ("year(ts)", (3, "year", "ts_year")),
        ("MONTHS( ts )", (3, "month", "ts_month")),
        ("day(ts)", (3, "day", "ts_day")),
        ("bucket(16, id)", (1, "bucket[16]", "id_bucket")),
        ("bucket(id,16)", (1, "bucket[16]", "id_bucket")),
        ("truncate(4, region)", (2, "truncate[4]", "region_trunc")),
        ("home.city", (8, "identity", "home.city")),
        ("bucket(2, `odd name```)", (9, "bucket[2]", "odd name`_bucket")),
    ],
)
def test_a_text_becomes_a_partition_field(text: str, field: tuple[int, str, str]) -> None:
    assert _told(partition_spec([text], SCHEMA)) == [field]


def test_fields_are_numbered_as_they_come() -> None:
    spec = partition_spec(["day(ts)", "bucket(16, id)", "region"], SCHEMA)
    assert [field.field_id for field in spec.fields] == [1000, 1001, 1002]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nowhere", "no column 'nowhere': there are id"),
        ("day(nowhere)", "no column 'nowhere'"),
    ],
)
def test_an_unknown_column_is_named_with_those_there_are(text: str, problem: str) -> None:
    with pytest.raises(UnknownColumnError, match=problem):
        partition_spec([text], SCHEMA)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("week(ts)", "no transform"),
        ("bucket(id)", "no transform"),
        ("bucket(0, id)", "no transform"),
        ("day(ts, 3)", "no transform"),
        ("day ts", "not understood"),
        ("", "not understood"),
        ("bucket(4, price)", "not for such a column"),
        ("day(region)", "not for such a column"),
        ("tags", "not for such a column"),
        ("hour(ts)", "'ts_hour' is a column's name"),
    ],
)
def test_what_makes_no_field_is_refused_with_its_text(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        partition_spec([text], SCHEMA)
    assert repr(text) in str(caught.value)


def test_the_same_field_twice_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="second field 'id_bucket'"):
        partition_spec(["bucket(4, id)", "bucket(8, id)"], SCHEMA)


def test_one_text_is_no_list_of_texts() -> None:
    with pytest.raises(InvalidArgumentError, match="give a list"):
        partition_spec("region", SCHEMA)


@pytest.mark.parametrize(
    ("text", "direction", "nulls"),
    [
        ("price", SortDirection.ASC, NullOrder.NULLS_FIRST),
        ("price desc", SortDirection.DESC, NullOrder.NULLS_LAST),
        ("price ASC NULLS LAST", SortDirection.ASC, NullOrder.NULLS_LAST),
        ("price desc nulls first", SortDirection.DESC, NullOrder.NULLS_FIRST),
    ],
)
def test_a_sort_order_has_a_direction_and_a_place_for_nulls(
    text: str, direction: SortDirection, nulls: NullOrder
) -> None:
    (field,) = sort_order([text], SCHEMA).fields
    assert (field.source_id, field.direction, field.null_order) == (4, direction, nulls)


def test_a_sort_order_takes_transforms() -> None:
    fields = sort_order(["day(ts) desc", "bucket(4, id)"], SCHEMA).fields
    assert [str(field.transform) for field in fields] == ["day", "bucket[4]"]


def test_a_sort_order_that_is_not_understood_is_refused_with_its_text() -> None:
    with pytest.raises(InvalidArgumentError, match=r"sort_by has 'price downwards'"):
        sort_order(["price downwards"], SCHEMA)
