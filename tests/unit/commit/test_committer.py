"""The commit loop: a change that lost is tried again, until it is in the table or gives up."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import (
    before_commits,
    ids,
    ids_of,
    listing,
    make_table,
    snapshots_of,
)

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def test_an_append_goes_beside_anything(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    actions = iter(
        [
            lambda: ice.append(theirs, ids(10, 11)),
            lambda: ice.overwrite(theirs, ids(20, 21)),
            lambda: ice.delete(theirs, "id = 20"),
        ]
    )
    with before_commits(catalog, lambda: next(actions)(), times=3):
        report = ice.append(table, ids(3, 5))
    assert report.commit_attempts == 4
    assert ids_of(table) == [3, 4]
    assert len(snapshots_of(table)) == 5
    # The metadata of the three lost tries is gone: nothing is stored that no snapshot needs.
    assert len([n for n in listing(table) if "snap-" in n]) == 5


def test_no_row_is_lost_or_doubled_between_two_appenders(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")
    for round_number in range(5):
        start = round_number * 10
        with before_commits(
            catalog, lambda start=start: ice.append(theirs, ids(start + 5, start + 10))
        ):
            ice.append(table, ids(start, start + 5))
    assert ids_of(table) == list(range(50))


def test_a_table_that_keeps_losing_gives_up_and_cleans_up(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, commit__retry__num_retries="2", **_QUICK)
    theirs = other.load_table("db.t")
    added: set[str] = set()

    def meanwhile() -> None:
        before = listing(table)
        ice.append(theirs, ids(0, 1))
        added.update(listing(table) - before)

    with (
        before_commits(catalog, meanwhile, times=3),
        pytest.raises(ice.CommitConflictError, match=r"lost against other commits 3 times"),
    ):
        ice.append(table, ids(10, 11))
    assert ids_of(table) == [0, 0, 0]
    assert listing(table) == added


def test_the_time_that_the_table_gives_ends_the_tries(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, commit__retry__total_timeout_ms="0", **_QUICK)
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, lambda: ice.append(theirs, ids(0, 1))),
        pytest.raises(ice.CommitConflictError, match="total-timeout-ms"),
    ):
        ice.append(table, ids(10, 11))
