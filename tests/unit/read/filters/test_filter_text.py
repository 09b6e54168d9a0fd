"""Filters as text: with their values for people, and without them for telemetry."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import GreaterThan
from pyiceberg.expressions.literals import DateLiteral
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, NestedField, StringType, TimestampType

from icestream.read.filters.filter_text import filter_shape, filter_text
from icestream.read.filters.fitting import fit_filter


@pytest.mark.parametrize(
    ("where", "shape"),
    [
        ("a = 'secret'", "a = ?"),
        ("a != 4711 or b >= 4711", "(a != ? or b >= ?)"),
        ("not (a < 4711 and b <= 4711)", "not (a < ? and b <= ?)"),
        ("a in ('secret', 'other')", "a in (?)"),
        ("a not in (4711, 4712)", "a not in (?)"),
        ("a is null and b is not null", "(a is null and b is not null)"),
        ("a is nan or b is not nan", "(a is nan or b is not nan)"),
        ("a like 'secret%'", "a like ?"),
        ("a not like 'secret%'", "a not like ?"),
        ("a.b > 4711", "a.b > ?"),
        ("true", "AlwaysTrue"),
    ],
)
def test_values_are_question_marks(where: str, shape: str) -> None:
    assert filter_shape(parse(where)) == shape


@pytest.mark.parametrize(
    "text",
    [
        "id < 7",
        "id < 7 and (name = 'it' or name is null)",
        "name like 'a%'",
        "country in ('NO', 'SE')",
        "not (id < 7 and price > 1.5)",
    ],
)
def test_a_filter_is_shown_with_its_values(text: str) -> None:
    assert filter_text(parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "day > '2024-01-31' and at < '2024-01-01 10:00:00'",
        "at in ('2024-01-01 10:00:00', '2024-01-01 10:00:00.000001')",
        "name = 'it''s' or name not like 'it''s%'",
        "false",
        "true",
    ],
)
def test_a_filter_is_shown_as_people_write_it(text: str) -> None:
    schema = Schema(
        NestedField(1, "day", DateType()),
        NestedField(2, "at", TimestampType()),
        NestedField(3, "name", StringType()),
    )
    assert filter_text(fit_filter(text, schema)) == text


def test_a_year_beyond_those_of_python_is_shown_as_the_stored_number() -> None:
    assert filter_text(GreaterThan("day", DateLiteral(10_000_000))) == "day > 10000000"
