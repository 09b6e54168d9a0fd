"""Write, audit, publish in catalogs that are servers: PostgreSQL, and Iceberg's REST catalog."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import ids, ids_of, make_table, snapshots_of
from tests.support.postgres import postgres_binaries, postgres_catalog, postgres_server
from tests.support.stored import folder_of, stored_files

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_PIPELINE = """
    name: shop
    defaults: {{engine: local, memory: 32MB}}
    loads:
      orders:
        source: orders.parquet
        into: {name}
        tests:
          - unique: id
          - rows: {{max: 100}}
"""

Connect = Callable[[], Catalog]
Refs = dict[str, int]


class Shop:
    """A pipeline of one tested load, in a namespace of its own."""

    def __init__(self, folder: Path, connect: Connect) -> None:
        self.folder = folder
        self.catalog, self.other = connect(), connect()
        self.name = f"{folder.name}.orders"
        self.catalog.create_namespace(folder.name)
        (folder / "pipeline.yaml").write_text(dedent(_PIPELINE.format(name=self.name)))

    def run(self, rows: pa.Table) -> ice.RunReport:
        pq.write_table(rows, self.folder / "orders.parquet")
        report = ice.run(
            self.folder / "pipeline.yaml", catalog=self.catalog, state=self.folder / "state"
        )
        assert isinstance(report, ice.RunReport)
        return report

    def refs(self) -> Refs:
        """The branches as another process finds them."""
        found = self.other.load_table(self.name).metadata.refs
        return {name: ref.snapshot_id for name, ref in found.items()}

    @contextmanager
    def commits(
        self, before: Callable[[int], object] = lambda number: None
    ) -> Iterator[list[Refs]]:
        """The branches after each commit.

        Args:
            before: Called before each, with its number.
        """
        commit, seen, numbers = self.catalog.commit_table, [], itertools.count(1)

        def commit_table(*args: Any, **kwargs: Any) -> Any:
            before(next(numbers))
            answer = commit(*args, **kwargs)
            seen.append(self.refs())
            return answer

        with mock.patch.object(self.catalog, "commit_table", commit_table):
            yield seen


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (apt install postgresql)")
    with postgres_server() as uri:
        yield uri


@pytest.fixture(params=["postgres", "rest"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    if request.param == "rest":
        made = Shop(tmp_path, request.getfixturevalue("java").catalog)
    else:
        uri, warehouse = request.getfixturevalue("uri"), f"file://{tmp_path}/warehouse"
        made = Shop(tmp_path, lambda: postgres_catalog(uri, warehouse=warehouse))
    yield made
    made.catalog.close()
    made.other.close()


@pytest.fixture
def table(shop: Shop) -> Table:
    """Ids 0 and 1 on main."""
    quick = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}
    made = make_table(shop.catalog, shop.name, **quick)
    ice.append(made, ids(0, 2))
    return made


def test_a_load_whose_tests_hold_is_published_by_one_commit_that_drops_its_branch(
    shop: Shop, table: Table
) -> None:
    start = shop.refs()["main"]
    with shop.commits() as seen:
        outcome = shop.run(ids(2, 5))["orders"]
    new = outcome.snapshot_id
    assert (outcome.status, outcome.attempts) == ("done", 1)
    made, loaded, published = seen
    (branch,) = set(made) - {"main"}
    assert made == {"main": start, branch: start}
    assert loaded == {"main": start, branch: new}
    assert published == {"main": new}
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert len(snapshots_of(table)) == 2


def test_a_load_whose_tests_fail_leaves_main_as_it_was_until_it_is_mended(
    shop: Shop, table: Table
) -> None:
    start = shop.refs()["main"]
    with pytest.raises(ice.ChecksFailedError, match=r"unique id: 1 key .*id = 1") as caught:
        shop.run(ids(1, 4))
    branch = caught.value.report.loads[0].audit_branch
    assert set(shop.refs()) == {"main", branch}
    assert shop.refs()["main"] == start
    assert ids_of(table) == [0, 1]
    assert ids_of(table, branch=branch) == [0, 1, 1, 2, 3]
    report = shop.run(ids(2, 4))
    assert not report.resumed
    assert ids_of(table) == [0, 1, 2, 3]
    assert shop.refs() == {"main": report["orders"].snapshot_id}


def test_a_commit_of_others_at_the_last_moment_is_kept_and_the_load_done_again(
    shop: Shop, table: Table
) -> None:
    def meanwhile(number: int) -> None:
        if number == 3:  # The branch was made and loaded: this one publishes it.
            ice.append(shop.other.load_table(shop.name), ids(50, 51))

    with shop.commits(meanwhile):
        outcome = shop.run(ids(2, 5))["orders"]
    assert outcome.attempts == 2
    assert ids_of(table) == [0, 1, 2, 3, 4, 50]
    assert shop.refs() == {"main": outcome.snapshot_id}


def test_a_table_that_a_tested_load_creates_has_no_rows_until_they_are_published(
    shop: Shop,
) -> None:
    rows: list[int] = []

    def look(number: int) -> None:
        if shop.other.table_exists(shop.name):
            rows.append(len(ids_of(shop.other.load_table(shop.name))))

    with shop.commits(look):
        outcome = shop.run(ids(0, 3))["orders"]
    assert outcome.report is not None
    assert outcome.report.created
    assert rows
    assert set(rows) == {0}
    assert shop.refs() == {"main": outcome.snapshot_id}
    assert ids_of(shop.catalog.load_table(shop.name)) == [0, 1, 2]


def test_a_table_that_a_tested_load_creates_is_gone_with_its_files_if_tests_fail(
    shop: Shop,
) -> None:
    folders: set[Path] = set()

    def look(number: int) -> None:
        if shop.other.table_exists(shop.name):
            folders.add(folder_of(shop.other.load_table(shop.name)))

    with shop.commits(look), pytest.raises(ice.ChecksFailedError, match="was not created"):
        shop.run(pa.concat_tables([ids(0, 3), ids(2, 3)]))
    assert not shop.catalog.table_exists(shop.name)
    (folder,) = folders
    assert stored_files(folder) == set()
    assert not shop.run(ids(0, 3)).resumed
    assert ids_of(shop.catalog.load_table(shop.name)) == [0, 1, 2]
