"""Columns of every type that Spark pushes filters on down to."""

from __future__ import annotations

from uuid import UUID

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

UUIDS = [UUID(int=n << 64 | 0xABCDEF) for n in range(6)]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "n", LongType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "f", FloatType()),
    NestedField(5, "s", StringType()),
    NestedField(6, "flag", BooleanType()),
    NestedField(7, "money", DecimalType(9, 2)),
    NestedField(8, "day", DateType()),
    NestedField(9, "at", TimestampType()),
    NestedField(10, "at_tz", TimestamptzType()),
    NestedField(11, "raw", BinaryType()),
    NestedField(12, "key", UUIDType()),
    NestedField(13, "code", FixedType(2)),
    NestedField(
        14,
        "in",
        StructType(
            NestedField(15, "n", LongType()), NestedField(16, "s", StringType(), required=False)
        ),
    ),
    NestedField(17, "items", ListType(18, LongType(), element_required=False)),
    NestedField(19, "a.b", LongType()),
)
