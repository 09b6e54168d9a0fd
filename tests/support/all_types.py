"""Rows of every Iceberg version-2 type, with the values on which readers go wrong."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

_MICROSECONDS_PER_DAY = 86_400_000_000
# The first day of 1680: ORC files are read in nanoseconds, which start in 1677.
_FIRST_DAY = -105_920
_SPECIAL_FLOATS = [float("nan"), -0.0, 0.0, float("inf"), float("-inf")]
_SPECIAL_STRINGS = ["", "ü", "\U0001f9ca", "a\x00b", " ", "NULL"]


def all_types_schema() -> Schema:
    """Return a schema of every version-2 primitive type and of nested ones; `id` is required."""
    primitives = [
        ("boolean", BooleanType()),
        ("int", IntegerType()),
        ("long", LongType()),
        ("float", FloatType()),
        ("double", DoubleType()),
        ("decimal9", DecimalType(9, 2)),
        ("decimal18", DecimalType(18, 4)),
        ("decimal38", DecimalType(38, 10)),
        ("date", DateType()),
        ("time", TimeType()),
        ("timestamp", TimestampType()),
        ("timestamptz", TimestamptzType()),
        ("string", StringType()),
        ("uuid", UUIDType()),
        ("fixed", FixedType(16)),
        ("binary", BinaryType()),
    ]
    flat = [NestedField(number + 2, name, type_) for number, (name, type_) in enumerate(primitives)]
    point = StructType(NestedField(51, "x", IntegerType()), NestedField(52, "name", StringType()))
    scored = StructType(NestedField(63, "score", LongType()), NestedField(64, "ok", BooleanType()))
    return Schema(
        NestedField(1, "id", LongType(), required=True),
        *flat,
        NestedField(20, "longs", ListType(21, LongType(), element_required=False)),
        NestedField(22, "tags", MapType(23, StringType(), 24, DoubleType(), value_required=False)),
        NestedField(
            30,
            "person",
            StructType(
                NestedField(31, "name", StringType()),
                NestedField(32, "born", DateType()),
                NestedField(33, "address", StructType(NestedField(34, "zip", StringType()))),
            ),
        ),
        NestedField(50, "points", ListType(53, point, element_required=False)),
        NestedField(60, "by_name", MapType(61, StringType(), 62, scored, value_required=False)),
        NestedField(
            70,
            "history",
            StructType(
                NestedField(71, "years", ListType(72, IntegerType(), element_required=False)),
                NestedField(73, "notes", MapType(74, IntegerType(), 75, StringType())),
            ),
        ),
        NestedField(
            80,
            "matrix",
            ListType(
                81, ListType(82, IntegerType(), element_required=False), element_required=False
            ),
        ),
    )


def all_types_rows(n: int, seed: int = 0) -> pa.Table:
    """Return `n` rows for `all_types_schema()`, the same for the same seed.

    A tenth of all optional values is null, on every level; lists and maps may be empty. Values
    of the map `history.notes` are required.
    """
    generator = random.Random(seed)
    makers = _makers(generator)
    schema = schema_to_pyarrow(all_types_schema(), include_field_ids=False)
    rows = {"id": pa.array(range(n), pa.int64())}
    for field in schema:
        if field.name in makers:
            make = _or_null(generator, makers[field.name])
            rows[field.name] = _array([make() for _ in range(n)], field.type)
    return pa.Table.from_arrays([rows[field.name] for field in schema], schema=schema)


def _array(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    if isinstance(arrow_type, pa.UuidType):
        return pa.array(values, pa.binary(16)).cast(arrow_type)
    return pa.array(values, arrow_type)


def _or_null(generator: random.Random, make: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: None if generator.random() < 0.1 else make()


def _makers(generator: random.Random) -> dict[str, Callable[[], Any]]:
    """Return a maker of non-null values for each optional column."""
    g = generator

    def one_in_five(special: list[Any], make: Callable[[], Any]) -> Any:
        return g.choice(special) if g.random() < 0.2 else make()

    def decimal(precision: int, scale: int) -> Decimal:
        largest = 10**precision - 1
        unscaled = one_in_five([largest, -largest, 0], lambda: g.randint(-largest, largest))
        return Decimal(f"{unscaled}E-{scale}")  # Exact; arithmetic would round to 28 digits.

    def moment(zone: Any = None) -> datetime:
        days = one_in_five([_FIRST_DAY, -1, 0], lambda: g.randint(-20_000, 40_000))
        return datetime(1970, 1, 1, tzinfo=zone) + timedelta(
            days=days, microseconds=g.randrange(_MICROSECONDS_PER_DAY)
        )

    def text() -> str:
        return one_in_five(_SPECIAL_STRINGS, lambda: f"text {g.randrange(1000)}" * g.randint(1, 4))

    def integer(bits: int) -> int:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        return one_in_five([low, high, 0, -1], lambda: g.randint(low, high))

    def single() -> float:
        return one_in_five(_SPECIAL_FLOATS, lambda: g.randint(-(2**23), 2**23) / 256)

    def double() -> float:
        return one_in_five(_SPECIAL_FLOATS, lambda: g.uniform(-1e9, 1e9))

    def many(make: Callable[[], Any]) -> list[Any]:
        return [make() for _ in range(g.choice([0, 0, 1, 2, 5]))]

    def pairs(key: Callable[[], Any], value: Callable[[], Any]) -> list[tuple[Any, Any]]:
        return list({key(): value() for _ in range(g.choice([0, 0, 1, 2, 5]))}.items())

    def null_or(make: Callable[[], Any]) -> Callable[[], Any]:
        return _or_null(g, make)

    def struct(**makers: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
        return lambda: {name: null_or(make)() for name, make in makers.items()}

    def day() -> date:
        return one_in_five([date.min, date.max], lambda: moment().date())

    point = struct(x=lambda: integer(32), name=text)
    address = struct(zip=text)
    scored = struct(score=lambda: integer(64), ok=lambda: g.random() < 0.5)
    history = struct(
        years=lambda: many(null_or(lambda: integer(32))),
        notes=lambda: pairs(lambda: integer(32), text),
    )
    return {
        "boolean": lambda: g.random() < 0.5,
        "int": lambda: integer(32),
        "long": lambda: integer(64),
        "float": single,
        "double": double,
        "decimal9": lambda: decimal(9, 2),
        "decimal18": lambda: decimal(18, 4),
        "decimal38": lambda: decimal(38, 10),
        "date": day,
        "time": lambda: (datetime.min + timedelta(microseconds=g.randrange(10**6 * 86400))).time(),
        "timestamp": moment,
        "timestamptz": lambda: moment(UTC),
        "string": text,
        "uuid": lambda: uuid.UUID(int=g.getrandbits(128)).bytes,
        "fixed": lambda: g.randbytes(16),
        "binary": lambda: g.randbytes(g.choice([0, 1, 30])),
        "longs": lambda: many(null_or(lambda: integer(64))),
        "tags": lambda: pairs(text, null_or(double)),
        "person": struct(name=text, born=day, address=address),
        "points": lambda: many(null_or(point)),
        "by_name": lambda: pairs(text, null_or(scored)),
        "history": history,
        "matrix": lambda: many(null_or(lambda: many(null_or(lambda: integer(32))))),
    }
