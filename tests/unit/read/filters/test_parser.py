"""The grammar of filters. `tests/property/test_filter_text.py` compares it with PyIceberg's."""

from __future__ import annotations

import pytest
from pyiceberg.expressions.parser import parse as parse_of_pyiceberg

from icestream.read.filters.parser import parse


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("n not between 1 and 2", "n < 1 or n > 2"),
        ("n BETWEEN 1 AND 2 and not a = 1", "n between 1 and 2 and not a = 1"),
        ("n = 1e3", "n = 1000."),
        ("n = -1.5E-2", "n = -0.015"),
        ("n in (1, 2, 2)", "n in (2, 1)"),
        ("`unit price` = 1", '"unit price" = 1'),
        ('"say ""x""" = 1', r'"say \x\" = 1'),
        ("d > date '2024-01-31'", "d > '2024-01-31'"),
        ("TIMESTAMP '2024-01-31 10:00' <= d", "d >= '2024-01-31 10:00'"),
        ("t < time '10:00'", "t < '10:00'"),
        ("date = date '2024-01-31'", "date = '2024-01-31'"),
        ("true and n = 1", "n = 1"),
        ("n = 1 or (false)", "n = 1"),
        ("not true", "false"),
        ("n = 1and a = 2", "n = 1 and a = 2"),
        (r"s = 'C:\'", "s = 'C:'"),
        ("s = 'two\nlines'", "s = 'two'"),
        ("s like 'a_c%'", "s like 'a_c%'"),
    ],
)
def test_more_is_read_than_pyiceberg_reads(text: str, plain: str) -> None:
    expected = str(parse_of_pyiceberg(plain)).replace("C:", r"C:\\").replace("two", r"two\nlines")
    assert str(parse(text).expression) == expected


@pytest.mark.parametrize(
    ("text", "column"), [('"a.b" = 1', "a.b"), ('"a.b".c = 1', "a.b.c"), ("größe = 1", "größe")]
)
def test_names_may_have_dots_in_quotes_and_letters_of_any_language(text: str, column: str) -> None:
    assert [condition.column for condition in parse(text).conditions] == [column]


def test_the_places_of_columns_and_constants_are_kept() -> None:
    text = "a.b > 1 and ('x' = c or d in (2, 3)) and e like 'f%' and g is null"
    places = [
        (condition.column, condition.position, *(each.position for each in condition.constants))
        for condition in parse(text).conditions
    ]
    assert places == [
        ("a.b", 0, 6),
        ("c", 19, 13),
        ("d", 24, 30, 33),
        ("e", 41, 48),
        ("g", 57),
    ]


def test_a_filter_with_thousands_of_conditions_is_parsed() -> None:
    text = " or ".join(f"n = {number}" for number in range(3000))
    assert len(parse(text).conditions) == 3000
