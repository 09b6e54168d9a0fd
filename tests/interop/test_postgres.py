"""A PostgreSQL catalog: every kind of change, load ids, and changes that meet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import create_engine, text

import icestream as ice
from tests.support.loads import BY_PART, batch, ids, make_table, rows_of
from tests.support.postgres import postgres_binaries, postgres_catalog, postgres_server
from tests.support.stored import folder_of, referenced_files, stored_files

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (apt install postgresql)")
    with postgres_server() as uri:
        yield uri


@pytest.fixture
def catalog(uri: str, tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = postgres_catalog(uri, warehouse=f"file://{tmp_path}/warehouse")
    yield catalog
    for identifier in catalog.list_tables("db"):
        catalog.drop_table(identifier)
    catalog.close()


@pytest.fixture
def other(uri: str, tmp_path: Path) -> Iterator[SqlCatalog]:
    """The same catalog as another process has it."""
    catalog = postgres_catalog(uri, warehouse=f"file://{tmp_path}/warehouse")
    yield catalog
    catalog.close()


def _only_what_it_refers_to(table: Table) -> None:
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_rows_are_appended_replaced_and_deleted_each_by_one_snapshot(catalog):
    table = make_table(catalog)
    ice.append(table, ids(0, 100))
    ice.append(table, ids(100, 200))
    ice.overwrite(table, ids(500, 510), where="id < 150")
    ice.delete(table, "id = 199")
    assert [row[0] for row in rows_of(table)] == [*range(150, 199), *range(500, 510)]
    assert len(table.snapshots()) == 4
    ice.overwrite(table, ids(0, 5))
    assert [row[0] for row in rows_of(table)] == list(range(5))


def test_partitions_are_replaced_by_those_that_come(catalog):
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 1), (2, 2), (3, None)]))
    ice.overwrite(table, batch([(4, 2), (5, 3)]), partitions="dynamic")
    assert sorted(row[0] for row in rows_of(table)) == [1, 3, 4, 5]


def test_a_load_is_committed_once_also_by_another_process(catalog, other):
    table = make_table(catalog)
    first = ice.append(table, ids(0, 10), load_id="2024-01-01")
    second = ice.append(other.load_table("db.t"), ids(0, 10), load_id="2024-01-01")
    assert (first.already_committed, second.already_committed) == (False, True)
    assert second.snapshot_id == first.snapshot_id
    assert second.rows_inserted == 10
    assert len(rows_of(table)) == 10
    _only_what_it_refers_to(table)


def test_appends_from_old_table_objects_lose_nothing(catalog, other):
    tables = [make_table(catalog), other.load_table("db.t")]
    for number in range(6):
        ice.append(tables[number % 2], ids(number * 10, (number + 1) * 10))
    assert [row[0] for row in rows_of(tables[0])] == list(range(60))
    _only_what_it_refers_to(tables[0])


def test_an_append_that_meets_another_is_tried_again(catalog, other):
    table = make_table(catalog)

    def meanwhile() -> Iterator[object]:
        yield from ids(0, 10).to_batches()
        ice.append(other.load_table("db.t"), ids(10, 20))

    report = ice.append(table, meanwhile())
    assert report.rows_inserted == 10
    assert [row[0] for row in rows_of(table)] == list(range(20))
    _only_what_it_refers_to(table)


def test_an_overwrite_that_did_not_see_new_rows_is_refused_and_leaves_nothing(catalog, other):
    table = make_table(catalog)
    ice.append(table, ids(0, 10))

    class Meanwhile:
        """Appends after the overwrite was planned: when its files are being committed."""

        done = False

        def __call__(self, *args: object, **kwargs: object) -> object:
            if not self.done:
                self.done = True
                ice.append(other.load_table("db.t"), ids(20, 25))
            return commit(*args, **kwargs)

    commit = catalog.commit_table
    catalog.commit_table = Meanwhile()  # type: ignore[method-assign]
    with pytest.raises(ice.CommitConflictError, match=r"db\.t"):
        ice.overwrite(table, ids(100, 110), where="id >= 5")
    assert [row[0] for row in rows_of(table)] == [*range(10), *range(20, 25)]
    _only_what_it_refers_to(table)


def test_a_load_goes_to_a_branch_and_main_stays(catalog):
    table = make_table(catalog)
    report = ice.append(table, ids(0, 10))
    table.manage_snapshots().create_branch(report.snapshot_id, "audit").commit()
    ice.append(table, ids(10, 20), branch="audit")
    assert len(rows_of(table)) == 10
    assert len(rows_of(table, branch="audit")) == 20


def test_a_schema_grows_with_its_load(catalog):
    table = make_table(catalog)
    ice.append(table, ids(0, 2))
    rows = ids(2, 4).append_column("extra", [["x", "y"]])
    report = ice.append(table, rows, schema_mode="evolve")
    assert report.schema_changes
    found = table.refresh().scan().to_arrow().sort_by("id")
    assert found["extra"].to_pylist() == [None, None, "x", "y"]


def test_a_dropped_table_is_named_and_nothing_is_left(catalog):
    table = make_table(catalog)
    ice.append(table, ids(0, 2))
    catalog.drop_table("db.t")
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CatalogError, match=r"db\.t"):
        ice.append(table, ids(2, 4))
    assert stored_files(folder_of(table)) == before


def test_a_server_that_ended_its_connections_is_named_and_the_next_try_works(catalog):
    table = make_table(catalog)
    ice.append(table, ids(0, 2))
    before = stored_files(folder_of(table))
    _end_connections(catalog)
    with pytest.raises(ice.CatalogError, match=r"db\.t"):
        ice.append(table, ids(2, 4))
    assert stored_files(folder_of(table)) == before
    ice.append(table, ids(2, 4))
    assert [row[0] for row in rows_of(table)] == [0, 1, 2, 3]


def _end_connections(catalog: SqlCatalog) -> None:
    """As a restart of the server or a firewall does."""
    engine = create_engine(catalog.engine.url)
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND usename = 'tests'"
            )
        )
    engine.dispose()
