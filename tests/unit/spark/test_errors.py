"""Errors as Spark's users see them."""

from __future__ import annotations

from icestream.spark.errors import typed


def test_an_error_of_others_stays_as_it_is() -> None:
    error = ValueError("no error of ours")
    assert typed(error) is error
