"""Errors of tasks and of Spark itself."""

from __future__ import annotations

import pytest

import icestream as ice
from icestream.spark.tasks.task_notes import driver_error, note_error


def test_a_query_that_is_wrong_stays_sparks_error() -> None:
    wrong = ValueError("not Spark's at all")
    assert driver_error(wrong, what="x") is wrong
    with pytest.raises(ice.InvalidDataError) as caught, note_error():
        raise ice.InvalidDataError("null", column="a")
    text = RuntimeError("\n".join(caught.value.__notes__))
    found = driver_error(text, what="x")
    assert isinstance(found, ice.InvalidDataError)
    assert found.column == "a"
