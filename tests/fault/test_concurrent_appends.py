"""Processes append to one table at once: every row is there once, and no call fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.appending import SCHEMA, Together, append_together, rows_of
from tests.support.catalogs import sqlite_catalog
from tests.support.postgres import postgres_binaries, postgres_catalog, postgres_server

_PROCESSES = 8


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[tuple[SqlCatalog, dict[str, str]]]:
    """A catalog, and how other processes get it."""
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (apt install postgresql)")
    with postgres_server() as uri:
        properties = {"uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}
        catalog = postgres_catalog(**properties)
        yield catalog, properties
        catalog.close()


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(3, marks=pytest.mark.timeout(300)),
        pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_eight_appenders_lose_no_row_and_see_no_failure(postgres, seconds, tmp_path, capsys):
    catalog, properties = postgres
    alone_table = catalog.create_table("db.alone", SCHEMA)
    alone = append_together(properties, "db.alone", processes=1, seconds=seconds)
    table = catalog.create_table("db.shared", SCHEMA)
    together = append_together(properties, "db.shared", processes=_PROCESSES, seconds=seconds)
    with capsys.disabled():
        print(_rates(seconds, alone, together))  # noqa: T201
    _check(alone_table, alone, tmp_path)
    _check(table, together, tmp_path)
    assert together.attempts_per_append > 1, "they never met: this showed nothing"


@pytest.mark.timeout(300)
def test_appenders_to_a_sqlite_catalog_wait_for_one_another(tmp_path):
    warehouse = f"file://{tmp_path}/warehouse"
    catalog = sqlite_catalog(tmp_path / "catalog.db", warehouse=warehouse)
    table = catalog.create_table("db.shared", SCHEMA)
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
    together = append_together(properties, "db.shared", processes=4, seconds=3)
    _check(table, together, tmp_path)
    assert together.attempts_per_append > 1, "they never met: this showed nothing"
    catalog.close()


def _check(table: Table, together: Together, tmp_path: Path) -> None:
    assert together.errors == []
    assert rows_of(table) == together.rows()
    assert len(table.snapshots()) == together.appends
    folder = tmp_path / "warehouse" / "db" / table.name()[-1]
    referred = {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}
    assert {str(path) for path in folder.glob("data/**/*.parquet")} == referred
    assert not list(folder.rglob("icestream-in-flight-*"))
    lists = {snapshot.manifest_list.removeprefix("file://") for snapshot in table.snapshots()}
    assert {str(path) for path in folder.glob("metadata/snap-*")} == lists


def _rates(seconds: float, alone: Together, together: Together) -> str:
    return (
        f"\n{seconds} s: {alone.appends_per_second:.1f} appends/s by one process, "
        f"{together.appends_per_second:.1f} by {_PROCESSES} "
        f"({together.appends_per_second / max(alone.appends_per_second, 1e-9):.2f}x), "
        f"{together.attempts_per_append:.2f} tries each, longest {together.longest_seconds:.1f} s"
    )
