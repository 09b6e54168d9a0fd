"""The plan of a merge: its key, and options that do not fit the table or the stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import icestream as ice
from tests.support.merges import filled, found, nothing_in_vain, stream

_A = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]


def test_the_key_is_the_tables_identifier_fields_by_default(catalog: SqlCatalog, mode: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "part", LongType(), required=True),
        NestedField(3, "text", StringType(), required=False),
        identifier_field_ids=[1, 2],
    )
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    required = pa.schema([("id", pa.int64(), False), ("part", pa.int64(), False), ("text", "str")])
    ice.append(table, stream([(1, 1, "a"), (1, 2, "b")]).cast(required))
    ice.merge(table, stream([(1, 2, "B"), (2, 2, "c")]).cast(required), write_mode=mode)
    assert found(table) == [(1, 1, "a"), (1, 2, "B"), (2, 2, "c")]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on": None}, ice.InvalidArgumentError, "no identifier fields"),
        ({"on": []}, ice.InvalidArgumentError, "give the name of a column"),
        ({"on": [1]}, ice.InvalidArgumentError, "give the name of a column"),
        ({"on": ["id", "id"]}, ice.InvalidArgumentError, "twice"),
        ({"on": "nope"}, ice.UnknownColumnError, "no column 'nope'"),
        ({"when_matched": "replace"}, ice.InvalidArgumentError, "when_matched"),
        ({"when_not_matched": "update"}, ice.InvalidArgumentError, "when_not_matched"),
        ({"on_duplicate": "first"}, ice.InvalidArgumentError, "on_duplicate"),
        ({"null_keys": "match"}, ice.InvalidArgumentError, "null_keys"),
        ({"write_mode": "fast"}, ice.InvalidArgumentError, "write_mode"),
        ({"isolation": "none"}, ice.InvalidArgumentError, "isolation"),
        ({"last_by": "part"}, ice.InvalidArgumentError, "on_duplicate='last'"),
        ({"last_by": "x", "on_duplicate": "last"}, ice.UnknownColumnError, "'x'"),
        ({"update_columns": "text"}, ice.InvalidArgumentError, "list of names"),
        ({"update_columns": []}, ice.InvalidArgumentError, "list of names"),
        ({"update_columns": ["x"]}, ice.UnknownColumnError, "'x'"),
        ({"update_columns": ["id"]}, ice.InvalidArgumentError, "a key column"),
        (
            {"update_columns": ["text"], "when_matched": "delete"},
            ice.InvalidArgumentError,
            "has no effect",
        ),
        ({"delete_when": "nope = 1"}, ice.InvalidArgumentError, "delete_when"),
        ({"delete_when": "part ="}, ice.InvalidArgumentError, "delete_when"),
        ({"schema_mode": "loose"}, ice.InvalidArgumentError, "schema_mode"),
        ({"branch": "nope"}, ice.IcestreamError, "nope"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(
    catalog: SqlCatalog, options: Any, error: type[Exception], message: str
) -> None:
    table = filled(catalog, _A)
    with pytest.raises(error, match=message):
        ice.merge(table, stream([(2, 5, "B")]), **{"on": "id", **options})
    assert found(table) == _A
    assert nothing_in_vain(table)


def test_a_stream_without_the_key_is_refused(catalog: SqlCatalog) -> None:
    table = filled(catalog, _A)
    with pytest.raises(ice.InvalidArgumentError, match="no column 'id'"):
        ice.merge(table, pa.table({"part": [1]}), on="id")
