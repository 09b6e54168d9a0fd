"""Logs, spans and metrics of one pass over a scan."""

from __future__ import annotations

import logging

from icestream.read.filters.filter_text import filter_shape
from icestream.read.split import ReadContext
from icestream.report.scan_report import ScanReport
from icestream.report.telemetry import measure, observe

_log = logging.getLogger("icestream.scan")


class ObservedScan:
    """Observes one pass until it completes, fails, or the consumer stops."""

    def __init__(self, context: ReadContext) -> None:
        self._table = context.table
        self._span = observe(
            "iceberg.scan",
            {"iceberg.table": context.table, "iceberg.snapshot.id": context.snapshot_id},
        )
        if self._span.recording:
            self._span.note(
                {
                    "iceberg.scan.columns": len(context.schema.fields),
                    "iceberg.scan.filter": filter_shape(context.row_filter),
                }
            )

    def end(self, report: ScanReport | None, error: BaseException | None = None) -> None:
        """Record the outcome. Later calls do nothing."""
        outcome = "error" if error is not None else "stopped"
        if report is not None and report.finished and error is None:
            outcome = "finished"
        if report is not None and self._span.recording:
            self._span.note(_facts(report))
        self._span.note({"iceberg.scan.outcome": outcome})
        if not self._span.end(error):
            return
        if report is not None:
            _measure(report, {"iceberg.table": self._table, "iceberg.scan.outcome": outcome})
            _log.info(
                "scan of %s %s: %s rows of %s files in %.2f s, %s of %s bytes held at most",
                self._table,
                outcome if outcome != "error" else "failed",
                report.rows,
                report.files,
                report.seconds,
                report.peak_bytes_held,
                report.memory_limit_bytes,
            )


def _facts(report: ScanReport) -> dict[str, str | int | float | None]:
    return {
        "iceberg.scan.rows": report.rows,
        "iceberg.scan.batches": report.batches,
        "iceberg.scan.bytes": report.bytes,
        "iceberg.scan.files": report.files,
        "iceberg.scan.files_planned": report.files_planned,
        "iceberg.scan.row_groups_skipped": report.row_groups_skipped,
        "iceberg.scan.retries": report.retries,
        "iceberg.scan.streams": report.streams,
        "iceberg.scan.time_to_first_batch": report.seconds_to_first_batch,
        "iceberg.scan.peak_bytes": report.peak_bytes_held,
        "iceberg.scan.memory_limit_bytes": report.memory_limit_bytes,
    }


def _measure(report: ScanReport, attributes: dict[str, str | int | float]) -> None:
    measure(
        {
            "iceberg.scan.rows": report.rows,
            "iceberg.scan.bytes": report.bytes,
            "iceberg.scan.files": report.files,
            "iceberg.scan.retries": report.retries,
            "iceberg.scan.duration": report.seconds,
            "iceberg.scan.time_to_first_batch": report.seconds_to_first_batch,
        },
        attributes,
    )
