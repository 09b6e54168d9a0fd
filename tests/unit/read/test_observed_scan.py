"""A filter's shape has its columns and none of its values."""

from __future__ import annotations

import pytest
from pyiceberg.expressions.parser import parse

from icestream.read.observed_scan import filter_shape


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
