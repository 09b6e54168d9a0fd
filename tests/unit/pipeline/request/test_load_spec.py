"""What a load is asked for is checked before anything is read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.load_spec import LoadSpec


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "mode is 'upsert'"),
        ({"mode": "apend"}, "did you mean 'append'"),
        ({"engine": "sparc"}, "did you mean 'spark'"),
        ({"key": "id"}, "did you mean 'keys'"),
        ({"keys": ["id"]}, "keys is for mode='merge'"),
        ({"delete_when": "a = 1"}, "delete_when is for mode='merge'"),
        ({"memory": "lots"}, "not a size"),
        ({"transform": ""}, "transform is ''"),
        ({"branch": ""}, "branch is '': name a branch"),
        ({"master": "local[2]", "engine": "local"}, "engine is 'local'"),
        ({"checkpoint": "x"}, "incremental=True"),
        ({"incremental": True, "mode": "replace"}, "would delete the rest"),
        ({"incremental": True, "load_id": "a"}, "leave load_id out"),
        ({"quarantine": "db.q"}, "bad_records='quarantine'"),
        ({"schema": {"id": "integr"}}, "'id' is 'integr'"),
        ({"catalog": {"uri": "x"}}, "catalog is not valid: give a catalog's name"),
        ({"catalog": ["a"]}, "catalog is not valid: give a catalog's name"),
        ({"transform": {"sql": "x"}}, "transform is not valid: give SQL"),
    ],
    ids=str,
)
def test_an_option_that_can_not_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("[", r"\[")):
        LoadSpec.of("a.csv", "db.t", **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "a source is empty"),
        ([], "there is no source"),
        (7, "a source is 7"),
        ({"pth": "x"}, "did you mean 'path'"),
        ({"path": "x", "format": "parqet"}, "did you mean 'parquet'"),
        ({"path": "x", "options": {"delimeter": ";"}}, "did you mean 'delimiter'"),
        ({"path": "x", "format": "orc", "options": {"delimiter": ";"}}, "an option of CSV"),
        ("jdbc:postgresql://host/db", "needs a table or a query"),
        ({"table": ["a"]}, "table is not valid: give a name"),
        ({"table": "db.a", "where": {"id": 1}}, "where is not valid: give text"),
    ],
    ids=str,
)
def test_a_source_that_can_not_be_is_refused(source: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        LoadSpec.of(source, "db.t")


def test_a_table_needs_a_namespace() -> None:
    with pytest.raises(InvalidArgumentError, match="is not a table name"):
        LoadSpec.of("a.csv", "t")
    with pytest.raises(InvalidArgumentError, match="into is not valid: give a name"):
        LoadSpec.of("a.csv", {"db": "t"})  # type: ignore[arg-type]


def test_types_may_be_named_as_arrow_or_iceberg_name_them() -> None:
    spec = LoadSpec.of(
        "a.csv",
        "db.t",
        schema={"id": "int64", "price": "decimal(10, 2)", "at": "timestamptz", "day": "date"},
    )
    assert spec.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
        ]
    )
