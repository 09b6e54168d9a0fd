"""PostgreSQL as a source, without a server: addresses, names and types. `tests/interop` has one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from icestream.errors import SourceError
from icestream.pipeline.inputs import postgres_source
from icestream.pipeline.inputs.postgres_source import (
    postgres_schema,
    quoted_name,
)
from icestream.pipeline.request.source_spec import SourceSpec


def _source(url: str, **options: Any) -> SourceSpec:
    return SourceSpec(kind="jdbc", url=url, table="t", options=options)


def test_names_are_quoted_part_by_part() -> None:
    assert quoted_name("Shop.order") == '"Shop"."order"'
    assert quoted_name('a"b') == '"a""b"'


@pytest.mark.parametrize(
    ("source", "uri"),
    [
        (_source("jdbc:postgresql://h:5/d"), "postgresql://h:5/d?connect_timeout=10"),
        (
            _source("postgres://old@h/d?sslmode=require", user="a b", password="p@/"),
            "postgresql://a%20b:p%40%2F@h/d?sslmode=require&connect_timeout=10",
        ),
        (_source("postgresql://h/d?connect_timeout=3"), "postgresql://h/d?connect_timeout=3"),
    ],
)
def test_addresses_are_those_of_libpq_with_a_time_limit(source: SourceSpec, uri: str) -> None:
    assert postgres_source._uri(source) == uri


def test_numbers_have_their_scale_and_moments_microseconds() -> None:
    def field(name: str, kind: pa.DataType, typname: str = "") -> pa.Field:
        return pa.field(name, kind, metadata={"ADBC:postgresql:typname": typname})

    schema = pa.schema(
        [
            field("price", pa.string(), "numeric"),
            field("any", pa.string(), "numeric"),
            field("at", pa.timestamp("ns", "Europe/Oslo")),
            field("local", pa.timestamp("s")),
            field("key", pa.uuid()),
            field("n", pa.int32()),
        ]
    )
    plain = postgres_source._plain(schema, {"price": (10, 2)})
    assert [str(each.type) for each in plain] == [
        "decimal128(10, 2)",
        "decimal128(38, 18)",
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
        "fixed_size_binary[16]",
        "int32",
    ]


def test_a_number_that_is_nan_becomes_null() -> None:
    column = postgres_source._cast(pa.array(["1.50", "nan", None]), pa.decimal128(10, 2))
    assert [None if v is None else str(v) for v in column.to_pylist()] == ["1.50", None, None]


def test_a_server_that_refuses_is_an_error_without_the_password() -> None:
    pytest.importorskip("adbc_driver_postgresql")
    source = _source("postgresql://127.0.0.1:1/d", user="me", password="hush-4711")
    with pytest.raises(SourceError, match="can't be read") as refusal:
        postgres_schema(source)
    assert "hush-4711" not in f"{refusal.value}{refusal.value.__cause__}"
