from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import And, EqualTo, GreaterThan, In, StartsWith
from pyiceberg.expressions.literals import DateLiteral, LongLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

import icestream as ice
from icestream.read.filters.fitting import fit_filter, no_column, parse_filter

_SCHEMA = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "country", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "address", StructType(NestedField(5, "city", StringType()))),
    NestedField(6, "tags", ListType(7, StringType())),
    NestedField(8, "a.b", LongType()),
)


def test_constants_become_values_of_their_columns() -> None:
    expected = And(GreaterThan("id", LongLiteral(1)), EqualTo("day", DateLiteral(1)))
    assert fit_filter("id > 1.0 and day = '1970-1-2'", _SCHEMA) == expected
    assert fit_filter(And(GreaterThan("id", 1), EqualTo("day", "1970-01-02")), _SCHEMA) == expected
    assert fit_filter("ID > 1", _SCHEMA, case_sensitive=False) == GreaterThan("ID", 1)
    assert fit_filter("\"a.b\" = 1 and address.city like 'O%'", _SCHEMA) == And(
        EqualTo("a.b", 1), StartsWith("address.city", "O")
    )


def test_values_of_a_set_that_are_out_of_range_are_left_out() -> None:
    assert fit_filter(f"id in (1, 2, {2**40})", _SCHEMA) == In("id", {1, 2})


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("contry = 'NO'", "the filter: there is no column 'contry': did you mean 'country'?"),
        ("id = 1 or adress.city = 'x'", "did you mean 'address.city'? (character 11 of "),
        ("ID = 1", "did you mean 'id'? (character 1 of 'ID = 1')"),
        (EqualTo("idd", 1), "the filter: there is no column 'idd': did you mean 'id'?"),
    ],
)
def test_an_unknown_column_is_named_with_its_place(where: Any, message: str) -> None:
    with pytest.raises(ice.UnknownColumnError) as caught:
        fit_filter(where, _SCHEMA)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("where", "position", "message"),
    [
        ("country = 'NO' and id = 'x'", 24, "'id' is an int and is compared with 'x'"),
        ("id in (1, 'x')", 10, "write a whole number"),
        ("id like '1%'", 0, "'id' is not a string"),
        ("tags.element = 'x'", 0, "is inside a list, which a filter can't look into"),
        (In("day", ["2024-01-01", "soon"]), None, "'day' is a date and is compared with 'soon'"),
    ],
)
def test_a_constant_that_does_not_fit_is_named_with_its_place(
    where: Any, position: int | None, message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="the filter x does not fit: ") as caught:
        fit_filter(where, _SCHEMA, label="the filter x")
    assert message in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        (f"small < {2**40}", [1, 3]),
        (f"small > -{2**40}", [1, 3]),
        (f"not (small >= {2**40})", [1, 3]),
        (f"small != {2**40}", [1, 3]),
        (f"not small = {2**40}", [1, 3]),
        (f"small not in ({2**40}, {2**41})", [1, 3]),
        (f"not (small in ({2**40}))", [1, 3]),
        (f"small >= {2**40} or not (small > -{2**40})", []),
        ("real < 1e300", [1]),
        ("real != 1e300", [1, 3, 4]),
        ("real >= 1e300", [3]),
        ("not (real > -1e300)", []),
        # These are certain for all rows. The columns are required, and not selected.
        ("id is not null and real < 1.5", [1]),
        ("id is null or real < 1.5", [1]),
        ("name is nan or real < 1.5", [1]),
        ("inner.x is null", [2]),
        ("inner.x is not null", [1, 3, 4]),
        ("not (inner.x is null) and real < 1.5", [1]),
        ("INNER.X is null or real < 1.5", [1, 2]),
    ],
)
def test_a_scan_and_a_delete_agree_on_constants_out_of_range_and_on_nulls(
    catalog: Catalog, where: str, ids: list[int]
) -> None:
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("small", pa.int32()),
            pa.field("real", pa.float32()),
            pa.field("name", pa.string()),
            pa.field("Inner" if where.startswith("INNER") else "inner", inner),
        ]
    )
    columns = [
        pa.array([1, 2, 3, 4]),
        pa.array([2**31 - 1, None, -(2**31), None], pa.int32()),
        pa.array([1.0, None, float("inf"), float("nan")], pa.float32()),
        pa.array(["1", "2", "3", "4"]),
        pa.array([{"x": 1}, None, {"x": 3}, {"x": 4}], inner),
    ]
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", schema=schema)
    ice.append(table, pa.Table.from_arrays(columns, schema=schema))
    plain = table.scan(case_sensitive=not where.startswith("INNER"))
    found = ice.scan(plain, columns=["name"], where=where)
    assert [int(name) for name in found.to_arrow()["name"].to_pylist()] == ids
    assert found.count() == len(ids)
    if plain.case_sensitive:
        ice.delete(table, where)
        left = ice.scan(table).to_arrow()["id"].to_pylist()
        assert left == [each for each in (1, 2, 3, 4) if each not in ids]


def test_only_text_and_expressions_are_filters() -> None:
    wrong: Any = 5
    with pytest.raises(ice.InvalidArgumentError, match="where is a int: give a string"):
        parse_filter(wrong)
    with pytest.raises(ice.InvalidArgumentError, match="the filter can't be parsed: it is empty"):
        parse_filter(" ")


def test_without_a_similar_column_the_columns_are_listed() -> None:
    assert no_column("x", ["alpha", "beta"]) == "there is no column 'x': it has alpha, beta"
    assert no_column("x", []) == "there is no column 'x': it has no columns"
