"""The options of a merge are defined once: everything that has them agrees with the definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

import icestream as ice
import icestream.spark as ice_spark
from icestream.operations.merge.merge_options import (
    MERGE_RULES,
    MergeOptions,
    MergeRules,
    choices_of,
)
from icestream.pipeline.request.load_spec import LoadSpec

_DEFAULTS = {each.name: each.default for each in fields(MergeRules)}


@pytest.mark.parametrize(
    "function", [ice.merge, ice.load, ice_spark.merge, ice_spark.merge_batches, MergeOptions]
)
def test_python_takes_every_option_with_its_default(function: Callable[..., Any]) -> None:
    parameters = signature(function).parameters
    assert {name: parameters[name].default for name in MERGE_RULES} == _DEFAULTS


def test_a_load_takes_every_option_with_its_default() -> None:
    spec = LoadSpec.of("a.csv", "db.t", mode="merge", keys="id")
    assert spec.merge_options == {**_DEFAULTS, "on": ("id",)}


def test_an_option_that_is_a_choice_names_its_words() -> None:
    assert choices_of("write_mode") == ("copy-on-write", "merge-on-read")
    assert choices_of("last_by") == ()
    with pytest.raises(ice.InvalidArgumentError, match="isolation is 'none': give 'serializable'"):
        MergeOptions(isolation="none").check()  # type: ignore[arg-type]
