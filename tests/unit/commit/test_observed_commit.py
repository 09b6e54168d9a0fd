"""A load is one span, with its commit and the scans that feed it inside."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import before_commits, ids, make_table
from tests.support.telemetry import Seen

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def test_an_append_is_a_load_with_a_commit_in_it(catalog: SqlCatalog, seen: Seen) -> None:
    table = make_table(catalog)
    report = ice.append(table, ids(0, 100))
    (load,), (commit,) = seen.spans("iceberg.load"), seen.spans("iceberg.commit")
    assert commit.parent is not None
    assert load.context is not None
    assert commit.parent.span_id == load.context.span_id
    assert dict(commit.attributes or {}) == {
        "iceberg.table": "db.t",
        "iceberg.branch": "main",
        "iceberg.snapshot.id": report.snapshot_id,
        "iceberg.commit.operation": "append",
        "iceberg.commit.outcome": "committed",
        "iceberg.commit.attempts": 1,
        "iceberg.commit.conflicts": 0,
    }
    noted = seen.span("iceberg.load")
    assert noted["iceberg.load.verb"] == "append"
    assert noted["iceberg.load.rows_inserted"] == 100
    assert noted["iceberg.load.peak_bytes"] == report.peak_bytes_held
    assert seen.metric("iceberg.commit.rows", commit__row_kind="inserted") == 100
    assert seen.metric("iceberg.commit.files_added", table="db.t") == report.files_added == 1
    assert seen.metric("iceberg.commit.bytes") == report.bytes_written
    assert seen.metric("iceberg.commit.duration", commit__outcome="committed") == 1
    assert seen.metric("iceberg.commit.attempts") == 1
    assert seen.metric("iceberg.commit.retries") == 0


def test_a_scan_that_feeds_a_load_is_inside_its_span(catalog: SqlCatalog, seen: Seen) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 100))
    seen.forget()
    ice.append(table, ice.scan(table))
    (load,), (scan,) = seen.spans("iceberg.load"), seen.spans("iceberg.scan")
    assert scan.parent is not None
    assert load.context is not None
    assert scan.parent.span_id == load.context.span_id


def test_commits_that_lose_are_counted(
    catalog: SqlCatalog, other: SqlCatalog, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    seen.forget()
    with before_commits(catalog, lambda: theirs.refresh().append(ids(10, 11)), times=2):
        ice.append(table, ids(3, 5))
    noted = seen.span("iceberg.commit")
    assert (noted["iceberg.commit.attempts"], noted["iceberg.commit.conflicts"]) == (3, 2)
    assert seen.metric("iceberg.commit.attempts") == 3
    assert seen.metric("iceberg.commit.retries") == 2
    assert seen.metric("iceberg.commit.conflicts", commit__outcome="committed") == 2
    warned = [line.message for line in caplog.records if line.levelname == "WARNING"]
    assert [line.rpartition(" (")[0] for line in warned] == [
        "commit to db.t, try 1: another commit was first",
        "commit to db.t, try 2: another commit was first",
    ]


def test_a_change_that_others_are_in_the_way_of_is_a_conflict(
    catalog: SqlCatalog, other: SqlCatalog, seen: Seen
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    seen.forget()
    with (
        before_commits(catalog, lambda: theirs.append(ids(10, 11))),
        pytest.raises(ice.CommitConflictError),
    ):
        ice.overwrite(table, ids(3, 5))
    (load,), (commit,) = seen.spans("iceberg.load"), seen.spans("iceberg.commit")
    for span in (load, commit):
        assert (span.attributes or {})["error.type"] == "CommitConflictError"
        assert not span.status.is_ok
    assert seen.span("iceberg.commit")["iceberg.commit.outcome"] == "conflict"
    assert seen.metric("iceberg.commit.conflicts", commit__outcome="conflict") == 2
    assert seen.metric("iceberg.commit.rows") == 0


def test_a_merge_says_that_it_is_one(catalog: SqlCatalog, seen: Seen) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 10))
    seen.forget()
    ice.merge(table, ids(5, 15, part=1), on="id")
    noted = seen.span("iceberg.load")
    assert noted["iceberg.load.verb"] == "merge"
    assert noted["iceberg.load.rows_updated"] == 5
    assert seen.metric("iceberg.commit.rows", commit__row_kind="updated") == 5
    assert seen.metric("iceberg.commit.rows", commit__row_kind="inserted") == 5


def test_a_load_that_was_there_before_makes_no_commit(catalog: SqlCatalog, seen: Seen) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 10), load_id="monday")
    seen.forget()
    ice.append(table, ids(0, 10), load_id="monday")
    assert seen.span("iceberg.load")["iceberg.load.already_committed"] is True
    assert not seen.spans("iceberg.commit")
    assert seen.metric("iceberg.commit.rows") == 0


def test_an_error_of_the_source_ends_the_load_as_it_is(catalog: SqlCatalog, seen: Seen) -> None:
    def source() -> pa.RecordBatchReader:
        yield ids(0, 10).to_batches()[0]
        raise LookupError("of the source")

    with pytest.raises(LookupError, match="of the source"):
        ice.append(make_table(catalog), source())
    (load,) = seen.spans("iceberg.load")
    assert (load.attributes or {})["error.type"] == "LookupError"
    assert not seen.spans("iceberg.commit")
