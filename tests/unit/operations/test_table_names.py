"""Every function takes a table's name with a catalog, and loads it in the same way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice

ROWS = pa.table({"id": [1, 2]})
CALLS: dict[str, Callable[..., Any]] = {
    "append": lambda table, **more: ice.append(table, ROWS, **more),
    "overwrite": lambda table, **more: ice.overwrite(table, ROWS, **more),
    "merge": lambda table, **more: ice.merge(table, ROWS, on="id", **more),
    "delete": lambda table, **more: ice.delete(table, "id = 1", **more),
    "compact": ice.compact,
    "health": ice.health,
    "orphans": ice.orphans,
    "write_target": ice.write_target,
    "write_files": lambda table, **more: ice.write_files(table, ROWS, **more),
    "commit_files": lambda table, **more: ice.commit_files(table, [], **more),
    "scan": lambda table, **more: ice.scan(table, **more).count(),
}
every_function = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.orders", ROWS.schema)
    ice.append(table, ROWS)
    return table


@every_function
def test_a_name_and_a_catalog_are_enough(
    catalog: SqlCatalog, table: Table, call: Callable[..., Any]
) -> None:
    call("db.orders", catalog=catalog)


@every_function
def test_a_name_that_is_close_is_suggested(
    catalog: SqlCatalog, table: Table, call: Callable[..., Any]
) -> None:
    with pytest.raises(ice.CatalogError, match=r"no table 'db.order' in .*mean 'db.orders'\?"):
        call("db.order", catalog=catalog)
    with pytest.raises(ice.InvalidArgumentError, match="a Table, which already has a catalog"):
        call(table, catalog=catalog)


@every_function
def test_something_else_is_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="int"):
        call(7)
