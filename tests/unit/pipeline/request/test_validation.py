"""Pydantic's errors as sentences."""

from __future__ import annotations

from typing import Any

import pytest

import icestream as ice
from icestream.pipeline.request.validation import (
    RequestModel,
    Switch,
    Text,
    Texts,
    check_keys,
    explained,
    suggestion,
)


class _Model(RequestModel):
    what = "the model"
    name: Text
    names: Texts = ()
    create: Switch = True
    password: str = ""


def _read(value: Any) -> _Model:
    with explained():
        return _Model.model_validate(value)


def test_one_text_is_a_list_of_one_and_truth_may_be_text() -> None:
    model = _read({"name": "a", "names": "x", "create": "False"})
    assert (model.names, model.create) == (("x",), False)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "no 'name' is given"),
        ({"name": " "}, "name is ' ': give text that is not empty"),
        ({"name": "a", "naems": []}, "the model has 'naems', which is unknown: did you mean"),
        ({"name": "a", "create": 1}, "create is 1: give true or false"),
        ("text", "the model is 'text': give names and values"),
    ],
    ids=str,
)
def test_an_error_says_what_is_wrong_and_what_to_write(value: Any, message: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        _read(value)


def test_values_that_may_be_secret_are_not_shown() -> None:
    with pytest.raises(ice.InvalidArgumentError, match="password is not valid") as caught:
        _read({"name": "a", "password": 12345})
    assert "12345" not in str(caught.value)


def test_the_path_of_a_value_leads_to_its_error() -> None:
    paths: list[tuple[str | int, ...]] = []

    def keep(path: tuple[str | int, ...], message: str) -> Exception:
        paths.append(path)
        return ice.InvalidArgumentError(message)

    with pytest.raises(ice.InvalidArgumentError), explained(keep, ("loads", "a")):
        _Model.model_validate({"name": "a", "names": ["x", ""]})
    assert paths == [("loads", "a", "names", 1)]


def test_unknown_keys_are_refused_with_the_nearest_or_all_known_ones() -> None:
    check_keys("only", ["a"], ("a", "b"))
    with pytest.raises(ice.InvalidArgumentError, match="only has 'c', which is unknown"):
        check_keys("only", ["c"], ("a", "b"))
    assert suggestion("ordres", ("orders", "daily")) == "did you mean 'orders'?"
    assert suggestion("x", ("orders", "daily")) == "give one of 'orders', 'daily'"
