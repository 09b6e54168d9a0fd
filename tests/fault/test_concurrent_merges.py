"""Processes merge into one table at once: as if one had come after the other, or one alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.catalogs import sqlite_catalog
from tests.support.loads import make_table, markers_of, ordered, snapshots_of
from tests.support.merges import MODES, QUICK, Row, found, stream
from tests.support.merging import Meeting, Merger, Outcome, merge_together
from tests.support.postgres import postgres_binaries, postgres_catalog, postgres_server

_FILES = [[(key, 0, "old") for key in range(first, first + 10)] for first in (0, 100)]
_ROUNDS = 3
_numbers = itertools.count()

_Catalog = tuple[SqlCatalog, dict[str, str]]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def catalog(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Catalog]:
    """A catalog, and how other processes get it."""
    folder = tmp_path_factory.mktemp("merges")
    warehouse = f"file://{folder}/warehouse"
    if request.param == "sqlite":
        yield from _sqlite(folder, warehouse)
    elif postgres_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (apt install postgresql)")
    else:
        with postgres_server() as uri:
            opened = postgres_catalog(uri, warehouse=warehouse)
            yield opened, {"uri": uri, "warehouse": warehouse}
            opened.close()


def _sqlite(folder: Path, warehouse: str) -> Iterator[_Catalog]:
    opened = sqlite_catalog(folder / "catalog.db", warehouse=warehouse)
    yield opened, {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}
    opened.close()


@pytest.fixture
def table(catalog: _Catalog) -> Table:
    """Two files: ids 0 to 9, and 100 to 109."""
    table = make_table(catalog[0], f"db.t{next(_numbers)}", **QUICK)
    for rows in _FILES:
        ice.append(table, stream(rows))
    return table


_modes = pytest.mark.parametrize(
    "modes",
    [(MODES[0],) * 2, (MODES[1],) * 2, MODES],
    ids=["both copy", "both on read", "one each"],
)


@_modes
@pytest.mark.parametrize("meeting", ["matching", "committing"])
def test_of_two_merges_of_the_same_keys_planned_together_one_is_refused(
    catalog: _Catalog, table: Table, modes: tuple[str, str], meeting: Meeting
) -> None:
    mergers = [Merger(mode, [_overlapping(n)]) for n, mode in enumerate(modes)]
    outcomes = _merge(catalog, table, mergers, meeting)
    (refusal,) = [outcome.refusal for outcome in outcomes if outcome.refusal is not None]
    assert ".".join(table.name()) in refusal


def test_of_two_merges_that_insert_the_same_keys_one_is_refused(
    catalog: _Catalog, table: Table
) -> None:
    """They remove nothing of which the second could find that it is gone."""
    mergers = [Merger(MODES[0], [[(20, n, "new"), (21, n, "new")]]) for n in range(2)]
    outcomes = _merge(catalog, table, mergers, "committing")
    assert sum(outcome.refusal is not None for outcome in outcomes) == 1


@_modes
def test_merges_of_the_same_keys_are_as_one_after_the_other(
    catalog: _Catalog, table: Table, modes: tuple[str, str]
) -> None:
    """They start at the same time, and which of them looks at the table when is left to them."""
    mergers = [
        Merger(mode, [_overlapping(n, of_round) for of_round in range(_ROUNDS)])
        for n, mode in enumerate(modes)
    ]
    outcomes = _merge(catalog, table, mergers, "after the streams")
    assert sum(outcome.snapshot_id is not None for outcome in outcomes) >= _ROUNDS


@_modes
def test_merges_of_other_keys_in_other_files_both_succeed(
    catalog: _Catalog, table: Table, modes: tuple[str, str]
) -> None:
    mergers = [Merger(mode, [_separate(n)]) for n, mode in enumerate(modes)]
    outcomes = _merge(catalog, table, mergers, "committing")
    assert [outcome.refusal for outcome in outcomes] == [None, None]


def _overlapping(merger: int, of_round: int = 0) -> list[Row]:
    """Rows that update and insert; the keys of two mergers overlap in both."""
    keys = [*range(4 * merger, 4 * merger + 8), *range(20 + merger, 24 + merger)]
    return [(key, merger + 1, f"round {of_round}") for key in keys]


def _separate(merger: int) -> list[Row]:
    """Rows that update one of the two files, and some new ones next to them."""
    first = 100 * merger + 5
    return [(key, merger + 1, "new") for key in range(first, first + 10)]


def _merge(
    catalog: _Catalog, table: Table, mergers: Sequence[Merger], meeting: Meeting
) -> list[Outcome]:
    before = snapshots_of(table)
    name = ".".join(table.name())
    outcomes = merge_together(catalog[1], name, mergers, meeting=meeting)
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    assert len(outcomes) == sum(len(merger.rounds) for merger in mergers)
    _check_rows(table, before, outcomes)
    _check_files(table)
    return outcomes


def _check_rows(table: Table, before: list[int], outcomes: Sequence[Outcome]) -> None:
    """Each merge that returned is one snapshot, with its rows upon those of the one before."""
    merged = {o.snapshot_id: o.rows for o in outcomes if o.snapshot_id is not None}
    after = snapshots_of(table)
    assert after[: len(before)] == before
    assert sorted(after[len(before) :]) == sorted(merged)
    expected = {row[0]: row for rows in _FILES for row in rows}
    for snapshot_id in after[len(before) :]:
        expected |= {row[0]: row for row in merged[snapshot_id]}
        rows = table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()
        assert ordered(tuple(row.values()) for row in rows) == ordered(expected.values())
    assert found(table) == ordered(expected.values())


def _check_files(table: Table) -> None:
    """Nothing is left over; the JSON of a commit that lost the race is PyIceberg's."""
    assert markers_of(table) == []
    report = ice.orphans(table, older_than=0)
    assert [f.path for f in report.files if not f.path.endswith(".metadata.json")] == []
    assert (report.kept_young, report.kept_in_flight) == (0, 0)
