"""Every verb refuses invalid options before it reads the stream or the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice

_SCHEMA = pa.schema([pa.field("id", pa.int64())])


def _unread() -> Iterator[pa.RecordBatch]:
    raise AssertionError("the stream is read")
    yield


_VERBS: dict[str, Callable[..., object]] = {
    "append": lambda table, **options: ice.append(table, _unread, **options),
    "overwrite": lambda table, **options: ice.overwrite(table, _unread, **options),
    "delete": lambda table, **options: ice.delete(table, "id = 1", **options),
    "merge": lambda table, **options: ice.merge(table, _unread, on="id", **options),
    "commit_files": lambda table, **options: ice.commit_files(table, [], **options),
}


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return catalog.create_table("db.options", _SCHEMA)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"branch": ""}, "branch is empty"),
        ({"load_id": ""}, "load_id"),
        ({"properties": {"operation": "append"}}, "which every commit sets itself"),
        ({"properties": {"rows": 1}}, "snapshot properties are strings"),
    ],
    ids=["branch", "load id", "reserved property", "property that is a number"],
)
@pytest.mark.parametrize("verb", _VERBS)
def test_an_invalid_option_is_refused(
    table: Table, verb: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        _VERBS[verb](table, **options)
    assert table.refresh().current_snapshot() is None


@pytest.mark.parametrize("verb", ["append", "overwrite", "merge"])
def test_an_unknown_schema_mode_is_refused(table: Table, verb: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="schema_mode is 'union'"):
        _VERBS[verb](table, schema_mode="union")
