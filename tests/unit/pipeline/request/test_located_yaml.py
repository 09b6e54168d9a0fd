"""YAML with line numbers and variables."""

from __future__ import annotations

import pytest

import icestream as ice
from icestream.pipeline.request.located_yaml import LocatedYaml


def _parse(text: str, **variables: str) -> LocatedYaml:
    return LocatedYaml.parse(text, "a.yaml", variables)


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[NO, on, 010, 1.5, true, 2026-11-16, 1:30, ~, '']"
    values = ["NO", "on", 10, 1.5, True, "2026-11-16", "1:30", None, ""]
    assert _parse(text).value == values


def test_variables_have_defaults_and_their_values_are_text() -> None:
    text = "- ${A}\n- ${B:-two}\n- ${C:-three}\n- $${A}\n- x${A}y"
    values = _parse(text, A="1", B="").value
    assert values == ["1", "two", "three", "${A}", "x1y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [", "a.yaml:2: this is not valid YAML"),
        ("a: 1\na: 2", "a.yaml:2: 'a' is given twice"),
        ("a:\n  b: ${NAEM}", r"a.yaml:2: .*'NAEM' is not set \(did you mean 'NAME'\?\)"),
        ("a: ${1x}", "a.yaml:1: .*is not a variable"),
        ("a: !!binary aGk=", "a.yaml:1: the tag"),
        ("a: &x\n  b: *x", "a.yaml:1: an alias refers to a value that contains it"),
        ("? [a]\n: 1", "a.yaml:1: a key is not text"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        _parse(text, NAME="x")


def test_an_error_about_a_value_names_its_line_or_that_of_its_parent() -> None:
    document = _parse("a: 1\nloads:\n  orders:\n    into: db.t")
    assert str(document.error(("loads", "orders", "into"), "wrong")) == "a.yaml:4: wrong"
    assert str(document.error(("loads", "orders", "source"), "missing")) == "a.yaml:3: missing"
    assert str(document.error(("nowhere",), "wrong")) == "a.yaml:1: wrong"
