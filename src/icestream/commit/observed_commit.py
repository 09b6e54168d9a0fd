"""Logs, spans and metrics of a commit, and of the write it belongs to."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack

from icestream.commit.change import Change
from icestream.errors import CommitConflictError, CommitUnknownError
from icestream.report.telemetry import measure, observe
from icestream.report.write_report import WriteReport

_log = logging.getLogger("icestream.commit")


class ObservedWrite:
    """The span of a write. The spans of its scans and its commit are children."""

    def __init__(self, verb: str, table: str) -> None:
        self._span = observe("iceberg.load", {"iceberg.table": table, "iceberg.load.verb": verb})
        self._stack = ExitStack()

    def __enter__(self) -> ObservedWrite:
        self._stack.enter_context(self._span.current())
        return self

    def done(self, report: WriteReport) -> WriteReport:
        """Note the results of the write."""
        self._span.note(
            {
                "iceberg.snapshot.id": report.snapshot_id,
                "iceberg.load.already_committed": report.already_committed,
                "iceberg.load.rows_inserted": report.rows_inserted,
                "iceberg.load.rows_updated": report.rows_updated,
                "iceberg.load.rows_deleted": report.rows_deleted,
                "iceberg.load.files_added": report.files_added,
                "iceberg.load.files_removed": report.files_removed,
                "iceberg.load.bytes_written": report.bytes_written,
                "iceberg.load.bytes_spilled": report.bytes_spilled,
                "iceberg.load.peak_bytes": report.peak_bytes_held,
                "iceberg.load.memory_limit_bytes": report.memory_limit_bytes,
            }
        )
        return report

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._stack.close()
        self._span.end(error)


class ObservedCommit:
    """The tries of one change.

    Args:
        table: The table's name.
        change: The change.
        snapshot_id: The change's snapshot.
    """

    def __init__(self, table: str, change: Change, snapshot_id: int) -> None:
        self._table = table
        self._change = change
        self._snapshot_id = snapshot_id
        self._started = time.monotonic()
        self._sent = self._conflicts = 0
        self._settled = False
        self._already = False
        self._span = observe(
            "iceberg.commit",
            {
                "iceberg.table": table,
                "iceberg.branch": change.branch,
                "iceberg.commit.operation": change.operation.value,
            },
        )

    def __enter__(self) -> ObservedCommit:
        return self

    def sent(self) -> None:
        """Note that a request is about to be sent."""
        self._sent += 1

    def lost(self, error: Exception, *, conflict: bool) -> None:
        """Note that a try failed; another may follow."""
        self._conflicts += conflict
        kind = type(error).__name__
        why = "another commit was first" if conflict else "there was no clear answer"
        _log.warning("commit to %s, try %s: %s (%s)", self._table, self._sent, why, kind)

    def refused(self) -> None:
        """Note that the change conflicts with another commit."""
        self._conflicts += 1

    def settled(self, *, already: bool) -> None:
        """Note that this commit, or an earlier one of the same load, is in the table."""
        self._settled, self._already = True, already

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        outcome, seconds = self._outcome(error), time.monotonic() - self._started
        self._span.note(
            {
                "iceberg.snapshot.id": self._snapshot_id if outcome == "committed" else None,
                "iceberg.commit.outcome": outcome,
                "iceberg.commit.attempts": self._sent,
                "iceberg.commit.conflicts": self._conflicts,
            }
        )
        self._measure(outcome, seconds)
        if outcome == "committed":
            self._log_success(seconds)
        self._span.end(error)

    def _outcome(self, error: BaseException | None) -> str:
        if self._settled:
            return "already" if self._already else "committed"
        if isinstance(error, CommitConflictError):
            return "conflict"
        return "unknown" if isinstance(error, CommitUnknownError) else "error"

    def _measure(self, outcome: str, seconds: float) -> None:
        named = {
            "iceberg.table": self._table,
            "iceberg.commit.operation": self._change.operation.value,
            "iceberg.commit.outcome": outcome,
        }
        measure(
            {
                "iceberg.commit.attempts": self._sent,
                "iceberg.commit.retries": max(self._sent - 1, 0),
                "iceberg.commit.conflicts": self._conflicts,
                "iceberg.commit.duration": seconds,
            },
            named,
        )
        if outcome != "committed":
            return
        counts = self._change.counts
        measure(
            {
                "iceberg.commit.bytes": counts.bytes_written,
                "iceberg.commit.files_added": len(self._change.added),
                "iceberg.commit.files_removed": len(self._change.removed),
            },
            named,
        )
        for kind, rows in (
            ("inserted", counts.rows_inserted),
            ("updated", counts.rows_updated),
            ("deleted", counts.rows_deleted),
        ):
            if rows:
                measure({"iceberg.commit.rows": rows}, {**named, "iceberg.commit.row_kind": kind})

    def _log_success(self, seconds: float) -> None:
        counts = self._change.counts
        _log.info(
            "%s of %s is snapshot %s: %s rows inserted, %s updated, %s deleted; %s files added, "
            "%s removed; committed in %.2f s, %s tries",
            self._change.operation.value,
            self._table,
            self._snapshot_id,
            counts.rows_inserted,
            counts.rows_updated,
            counts.rows_deleted,
            len(self._change.added),
            len(self._change.removed),
            seconds,
            self._sent,
        )
