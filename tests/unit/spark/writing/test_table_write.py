"""Ctrl-C while the catalog is asked: what may be in the table is never deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.commit import committer
from icestream.spark.writing.table_write import FrameWriteOptions, PlannedWrite
from tests.support.loads import make_table, snapshots_of
from tests.support.merges import found, stream
from tests.support.stored import folder_of, referenced_files, stored_files

Interrupt = Callable[[bool], None]


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Have Ctrl-C come when the catalog has answered, or before it is asked."""
    ask = committer.commit_to_catalog

    def prepare(after: bool) -> None:
        def asked(*arguments: Any, **options: Any) -> None:
            if after:
                ask(*arguments, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(committer, "commit_to_catalog", asked)

    return prepare


@pytest.mark.parametrize("after", [True, False], ids=["answered", "not asked"])
def test_what_an_append_has_committed_stays(
    catalog: SqlCatalog, interrupt: Interrupt, after: bool
) -> None:
    table = make_table(catalog)
    rows = stream([(n, 0, f"{n}") for n in range(10)])
    planned = PlannedWrite.into(table, rows.schema, FrameWriteOptions("append", memory=16_000_000))
    result = planned.task.write(rows.to_batches())
    interrupt(after)
    with pytest.raises(KeyboardInterrupt):
        planned.commit(table, [result])
    assert len(found(table)) == (10 if after else 0)
    assert referenced_files(table) <= stored_files(folder_of(table))


def test_a_load_that_is_in_the_table_already_keeps_its_own_files(catalog: SqlCatalog) -> None:
    """The answer of the first commit was lost: the second finds these very files."""
    table = make_table(catalog)
    rows = stream([(n, 0, f"{n}") for n in range(10)])
    planned = PlannedWrite.into(table, rows.schema, FrameWriteOptions("append", memory=16_000_000))
    result = planned.task.write(rows.to_batches())
    reports = [planned.commit(table, [result]) for _ in range(2)]
    assert [report.already_committed for report in reports] == [False, True]
    assert len(found(table)) == 10
    assert len(snapshots_of(table)) == 1


def test_files_of_a_load_that_somebody_else_has_committed_are_deleted(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    rows = stream([(n, 0, f"{n}") for n in range(10)])
    options = FrameWriteOptions("append", memory=16_000_000, load_id="monday")
    planned = PlannedWrite.into(table, rows.schema, options)
    result = planned.task.write(rows.to_batches())
    ice.append(catalog.load_table(table.name()), pa.table(rows), load_id="monday")
    assert planned.commit(table, [result]).already_committed
    assert len(found(table)) == 10
    assert {f for f in stored_files(folder_of(table)) if f.endswith(".parquet")} <= (
        referenced_files(table)
    )
