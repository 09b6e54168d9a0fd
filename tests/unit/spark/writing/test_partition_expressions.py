"""Spark's expressions for partitions."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StructType

from icestream.spark.writing.partition_expressions import expression


def test_fields_that_say_nothing_are_left_out() -> None:
    nested = StructType(NestedField(3, "b", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "a", nested))
    assert expression(schema, 1, VoidTransform(), ["id"]) is None
    assert expression(schema, 1, IdentityTransform(), ["other"]) is None
    assert expression(schema, 3, IdentityTransform(), ["id"]) is None
