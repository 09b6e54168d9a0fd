"""Which loads wait for which."""

from __future__ import annotations

import pytest

import icestream as ice
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.pipeline_file import PipelineLoad
from icestream.pipeline.run_order import needs_of, run_order


def _load(name: str, source: object, into: str, *after: str) -> PipelineLoad:
    return PipelineLoad(name, LoadSpec.of(source, into, name=name), after=after)


def _order(*loads: PipelineLoad) -> list[str]:
    return run_order(needs_of(loads))


def test_loads_run_as_in_the_file_if_nothing_else_is_said() -> None:
    assert _order(_load("b", "x", "d.b"), _load("a", "x", "d.a")) == ["b", "a"]


def test_after_and_tables_that_are_read_decide() -> None:
    loads = (
        _load("daily", "table:d.clean", "d.daily"),
        _load("clean", {"table": "d.raw"}, "d.clean"),
        _load("raw", "x", "d.raw", "first"),
        _load("first", "x", "d.first"),
    )
    assert _order(*loads) == ["first", "raw", "clean", "daily"]


def test_a_table_of_another_catalog_is_another_table() -> None:
    loads = (
        _load("copy", {"table": "d.raw", "catalog": "other"}, "d.copy"),
        _load("raw", "x", "d.raw"),
    )
    assert needs_of(loads)["copy"] == ()


def test_loads_of_one_table_run_one_after_the_other() -> None:
    loads = (
        _load("new", "x", "d.t"),
        _load("changes", "y", "d.t"),
        _load("daily", "table:d.t", "d.u"),
    )
    needs = needs_of(loads)
    assert needs["changes"] == ("new",)
    assert needs["daily"] == ("new", "changes")
    turned = (_load("new", "x", "d.t", "changes"), _load("changes", "y", "d.t"))
    assert _order(*turned) == ["changes", "new"]


def test_a_load_may_read_the_table_that_it_writes() -> None:
    assert _order(_load("a", "table:d.t", "d.t")) == ["a"]


def test_a_cycle_is_named() -> None:
    loads = (
        _load("z", "x", "d.z"),
        _load("a", "table:d.b", "d.a"),
        _load("b", "x", "d.b", "c"),
        _load("c", "table:d.a", "d.c"),
    )
    with pytest.raises(ice.InvalidArgumentError, match="a -> b -> c -> a"):
        needs_of(loads)
