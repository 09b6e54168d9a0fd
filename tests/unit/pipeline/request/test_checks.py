"""Tests as users write them."""

from __future__ import annotations

import re
from typing import Any

import pytest

import icestream as ice
from icestream.pipeline.request.checks import Check


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("not_null", "write it like"),
        ({}, "exactly one"),
        ({"unique": "a", "not_null": "a"}, "exactly one"),
        ({"not_nul": ["a"]}, "did you mean 'not_null'"),
        ({"rows": 5}, "min: 1"),
        ({"rows": {"mini": 5}}, "did you mean 'min'"),
        ({"rows": {"min": -1}}, "whole number"),
        ({"rows": {"min": 2, "max": 1}}, "must not be greater"),
        ({"unique": []}, "name columns"),
        ({"unique": ["a", "a"]}, "twice"),
        ({"accepted_values": ["a"]}, "column: country"),
        ({"accepted_values": {"column": "a", "values": "b"}}, "give a list"),
        ({"accepted_values": {"column": "a", "values": [None]}}, "not_null"),
        ({"sql": "  "}, "must return no rows"),
        ({"sql": " ; "}, "must return no rows"),
        ({"sql": "SELECT 1", "name": " "}, "name is ' ': give text"),
    ],
)
def test_what_is_no_test_is_refused(written: Any, message: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        Check.parse(written)


def test_a_test_is_named_after_what_it_says() -> None:
    written = [
        {"rows": {"min": "3"}},
        {"unique": ["a", "b"]},
        {"sql": f"SELECT {'x' * 80}\nFROM y"},
    ]
    names = [Check.parse(each).name for each in written]
    assert names[:2] == ["rows min 3", "unique a, b"]
    assert re.fullmatch(r"sql SELECT x+\.\.\.", names[2])
