"""Commits of frames that happened and are called refused, or may still land: no file is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table import Table

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.table_write import PlannedWrite, WriteOptions
from tests.support.loads import after_commits, make_table, markers_of, raising
from tests.support.merges import MODES, filled, found, stream
from tests.support.stored import folder_of, referenced_files, stored_files

_ERRORS: dict[str, Callable[[], Exception]] = {
    "conflict": lambda: CommitFailedException("another was first"),
    "unknown": lambda: CommitStateUnknownException("lost"),
    "value": lambda: ValueError("no"),
    "disk full": lambda: OSError(28, "No space left on device"),
    "403": lambda: ForbiddenError("no"),
}
_QUICK = {
    "commit__retry__num_retries": "0",
    "commit__retry__min_wait_ms": "1",
    "commit__retry__max_wait_ms": "2",
}
_NEW = [(n, 0, "new") for n in range(5)]

each_error = pytest.mark.parametrize("error", _ERRORS.values(), ids=_ERRORS.keys())


def _planned(table: Table, mode: Any) -> Callable[[], ice.WriteReport]:
    """A write whose task has run: the commit is left."""
    rows = stream(_NEW)
    planned = PlannedWrite.into(table, rows.schema, WriteOptions(mode, 16_000_000))
    result = planned.task.write(rows.to_batches())
    return lambda: planned.commit(table, [result])


def _check_files(table: Table) -> None:
    assert referenced_files(table) <= stored_files(folder_of(table))


class _Sent:
    """Refuses commits, which may land later."""

    def __init__(self, catalog: SqlCatalog, error: Callable[[], Exception]) -> None:
        self._commit, self._error = catalog.commit_table, error
        self._sent: list[tuple[Any, ...]] = []
        self.patches = (
            mock.patch.object(catalog, "commit_table", self._refuse),
            mock.patch("icestream.commit.sent.has_ended", return_value=False),
        )

    def _refuse(self, *args: Any) -> None:
        self._sent.append(args)
        raise self._error()

    def land(self) -> None:
        self._commit(*self._sent[0])


@each_error
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_that_was_committed_counts(
    catalog: SqlCatalog, mode: str, error: Callable[[], Exception]
) -> None:
    table = make_table(catalog, **_QUICK)
    commit = _planned(table, mode)
    with after_commits(catalog, raising(error())):
        report = commit()
    assert report.rows_inserted == 5
    assert found(table) == _NEW
    _check_files(table)


@each_error
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_that_may_still_land_finds_its_files(
    catalog: SqlCatalog, mode: str, error: Callable[[], Exception]
) -> None:
    table = make_table(catalog, **_QUICK)
    commit, sent = _planned(table, mode), _Sent(catalog, error)
    with sent.patches[0], sent.patches[1], pytest.raises(ice.CommitUnknownError):
        commit()
    assert len(markers_of(table)) == 1
    sent.land()
    assert found(table) == _NEW
    _check_files(table)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_write_that_is_refused_leaves_nothing(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog, **_QUICK)
    commit = _planned(table, mode)
    with (
        mock.patch.object(catalog, "commit_table", side_effect=CommitFailedException("no")),
        pytest.raises(ice.CommitConflictError),
    ):
        commit()
    assert {path for path in stored_files(folder_of(table)) if "metadata.json" not in path} == set()


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_merge_keeps_what_is_or_may_be_in_the_table(
    spark: Any, catalog: SqlCatalog, mode: str, landed: bool
) -> None:
    table = filled(catalog, [(n, 0, "old") for n in range(10)])
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    frame = spark.createDataFrame(
        [(3, 0, "new"), (20, 0, "new")], "id long, part long, text string"
    )

    def merge() -> None:
        ice_spark.merge(frame, table, on="id", write_mode=mode)

    if landed:
        with after_commits(catalog, raising(CommitFailedException("false"))):
            merge()
    else:
        sent = _Sent(catalog, _ERRORS["conflict"])
        with sent.patches[0], sent.patches[1], pytest.raises(ice.CommitUnknownError):
            merge()
        assert len(markers_of(table)) == 1
        sent.land()
    expected = [(n, 0, "new" if n in (3, 20) else "old") for n in (*range(10), 20)]
    assert found(table) == expected
    _check_files(table)


@pytest.mark.parametrize("landed", [True, False])
def test_a_table_that_is_created_keeps_its_first_rows(
    spark: Any, catalog: SqlCatalog, landed: bool
) -> None:
    frame = spark.createDataFrame(_NEW, "id long, part long, text string")

    def create() -> None:
        ice_spark.append(frame, "db.new", catalog=catalog, create=True)

    if landed:
        with after_commits(catalog, raising(CommitFailedException("false"))):
            create()
    else:
        sent = _Sent(catalog, _ERRORS["403"])
        with sent.patches[0], sent.patches[1], pytest.raises(ice.CommitUnknownError):
            create()
        sent.land()
    table = catalog.load_table("db.new")
    assert found(table) == _NEW
    assert len(markers_of(table)) == (not landed)
    _check_files(table)
