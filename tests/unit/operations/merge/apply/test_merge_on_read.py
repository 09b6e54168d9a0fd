"""Merge-on-read looks at one column where that tells, and at the others where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.live_files import LiveFiles
from tests.support.merges import filled, found, nothing_in_vain, stream

_FILES = [[(n, n % 7, f"text {n}") for n in range(f * 10, f * 10 + 10)] for f in range(8)]
_ROWS = [row for rows in _FILES for row in rows]


@pytest.fixture
def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str] | None, int]]:
    """The columns that were asked for of files, and of how many files."""
    asked: list[tuple[list[str] | None, int]] = []
    located = LiveFiles.located

    def noted(
        self: LiveFiles, tasks: Sequence[Any], columns: Any = None, positions: Any = None
    ) -> Iterator[Any]:
        asked.append((columns and list(columns), len(tasks)))
        return located(self, tasks, columns, positions)

    monkeypatch.setattr(LiveFiles, "located", noted)
    return asked


def _merge(table: Table, rows: pa.Table, **options: Any) -> ice.MergeReport:
    return ice.merge(table, rows, on="id", write_mode="merge-on-read", **options)


def test_a_column_in_which_all_rows_differ_is_the_only_one_read(
    catalog: SqlCatalog, columns_read: list[tuple[list[str] | None, int]]
) -> None:
    table = filled(catalog, *_FILES)
    rows = [(n, n % 7, f"other {n}") for n in range(0, 80, 3)]
    report = _merge(table, stream(rows))
    assert columns_read == [(["id"], 8), (None, 1), (["text"], 7), (None, 0)]
    assert found(table) == sorted([row for row in _ROWS if row[0] % 3] + rows)
    assert (report.rows_updated, report.rows_unchanged) == (len(rows), 0)
    assert nothing_in_vain(table)


def test_rows_that_are_the_same_in_it_are_compared_by_all_columns(
    catalog: SqlCatalog, columns_read: list[tuple[list[str] | None, int]]
) -> None:
    """In file 2 some have another part only, in file 5 some are as they were, one is deleted."""
    table = filled(catalog, *_FILES)
    rows = [(n, n % 7, f"other {n}") for n in range(80)]
    rows[23:26] = [(n, 100 + n, f"text {n}") for n in range(23, 26)]
    rows[51:54] = _ROWS[51:54]
    gone = np.zeros(80, np.bool_)
    gone[[24, 77]] = True
    report = _merge(table, stream(rows, gone=pa.array(gone)), delete_when="gone = true")
    assert columns_read == [(["id"], 8), (None, 1), (["text"], 7), (None, 2)]
    assert found(table) == [row for row in rows if not gone[row[0]]]
    assert (report.rows_updated, report.rows_unchanged, report.rows_deleted) == (75, 3, 2)
    assert report.delete_files_added == 8
    assert nothing_in_vain(table)


def test_without_a_column_that_tells_all_are_read(
    catalog: SqlCatalog, columns_read: list[tuple[list[str] | None, int]]
) -> None:
    table = filled(catalog, *_FILES)
    rows = [(n, 100 + n, t) if n % 2 else (n, p, f"other {n}") for n, p, t in _ROWS]
    rows[40:50] = _ROWS[40:50]
    report = _merge(table, stream(rows))
    assert columns_read == [(["id"], 8), (None, 1), (None, 7)]
    assert found(table) == rows
    assert (report.rows_updated, report.rows_unchanged) == (70, 10)


def test_columns_that_the_merge_itself_adds_are_not_read_from_the_table(
    catalog: SqlCatalog,
) -> None:
    table = filled(catalog, *_FILES)
    more = pa.array([f"more {n}" for n in range(80)])
    report = _merge(table, stream(_ROWS, more=more), schema_mode="evolve")
    assert found(table) == [(*row, f"more {row[0]}") for row in _ROWS]
    assert (report.rows_updated, report.rows_unchanged) == (80, 0)


def test_deletes_of_earlier_merges_stay(catalog: SqlCatalog) -> None:
    table = filled(catalog, *_FILES)
    for turn in range(3):
        rows = [(n, n % 7, f"turn {turn} {n}") for n in range(turn, 80, 2)]
        _merge(table, stream(rows))
    expected = {row[0]: row for row in _ROWS}
    for turn in range(3):
        expected |= {n: (n, n % 7, f"turn {turn} {n}") for n in range(turn, 80, 2)}
    assert found(table) == [expected[n] for n in range(80)]
