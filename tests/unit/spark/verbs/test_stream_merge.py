"""Options of a merge of micro-batches."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream.spark as ice_spark
from icestream.commit.outcome.load_id import batch_load_id
from tests.support.loads import make_table

# What a stream does not leave to the caller: the frame and its load id come with each micro-batch,
# and the table must be there.
_OF_MERGE_ALONE = {"frame", "load_id", "create", "partition_by", "sort_by", "table_properties"}


def _options(function: Any) -> dict[str, tuple[Any, ...]]:
    """What a function takes, with kinds, defaults and types."""
    given: dict[str, Parameter] = dict(signature(function).parameters)
    return {name: (each.kind, each.default, each.annotation) for name, each in given.items()}


def test_there_is_every_option_of_merge_with_the_same_default() -> None:
    ours, theirs = _options(ice_spark.merge_batches), _options(ice_spark.merge)
    assert set(theirs) - set(ours) == _OF_MERGE_ALONE
    assert set(ours) - set(theirs) == {"stream_id"}
    shared = set(ours) & set(theirs)
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_every_option_arrives_as_it_was_given(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(catalog)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(
        "icestream.spark.verbs.stream_merge.merge",
        lambda *args, **kwargs: calls.append((args, kwargs)),
    )
    own = {"table", "stream_id", "catalog"}
    given: dict[str, Any] = {name: object() for name in _options(ice_spark.merge_batches)}
    given = {name: value for name, value in given.items() if name not in own}
    given["properties"] = {"by": "spark"}
    frame: Any = object()
    merging = ice_spark.merge_batches("db.t", catalog=catalog, stream_id="orders", **given)
    merging(frame, 7)
    ((args, kwargs),) = calls
    assert kwargs == {**given, "load_id": batch_load_id("orders", 7)}
    merged, into = args
    assert merged is frame
    assert into.name() == ("db", "t")
