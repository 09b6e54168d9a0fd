"""A scan is one span, however it ends, and is counted once; its filter has none of its values."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.data_files import write_parquet_file
from tests.support.tables import commit_files, data_file_paths
from tests.support.telemetry import Seen

_FILES, _FILE_ROWS = 3, 4_000


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = catalog.create_table("db.orders", schema)
    written = []
    for number in range(_FILES):
        ids = range(number * _FILE_ROWS, (number + 1) * _FILE_ROWS)
        rows = pa.table({"id": list(ids), "text": [f"row {i}" for i in ids]}, schema=schema)
        written.append(write_parquet_file(table, rows, row_group_rows=1_000))
    commit_files(table, written)
    return table.refresh()


def test_a_scan_is_one_span_with_what_it_did(table: Table, seen: Seen) -> None:
    scan = ice.scan(table, where="id >= 4000 and text != 'secret'", columns=["id"], memory="32MB")
    rows = sum(batch.num_rows for batch in scan)
    report = scan.report
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert seen.span("iceberg.scan") == {
        "iceberg.table": "db.orders",
        "iceberg.snapshot.id": snapshot.snapshot_id,
        "iceberg.scan.columns": 1,
        "iceberg.scan.filter": "(id >= ? and text != ?)",
        "iceberg.scan.outcome": "finished",
        "iceberg.scan.rows": rows,
        "iceberg.scan.batches": report.batches,
        "iceberg.scan.bytes": report.bytes,
        "iceberg.scan.files": 2,
        "iceberg.scan.files_planned": 2,
        "iceberg.scan.row_groups_skipped": report.row_groups_skipped,
        "iceberg.scan.retries": 0,
        "iceberg.scan.streams": report.streams,
        "iceberg.scan.time_to_first_batch": report.seconds_to_first_batch,
        "iceberg.scan.peak_bytes": report.peak_bytes_held,
        "iceberg.scan.memory_limit_bytes": 32_000_000,
    }


def test_the_metrics_of_a_scan_add_up(table: Table, seen: Seen) -> None:
    for _ in range(2):
        scan = ice.scan(table)
        for _ in scan:
            pass
    named = {"table": "db.orders", "scan__outcome": "finished"}
    assert seen.metric("iceberg.scan.rows", **named) == 2 * _FILES * _FILE_ROWS
    assert seen.metric("iceberg.scan.files", **named) == 2 * _FILES
    assert seen.metric("iceberg.scan.bytes", **named) == 2 * scan.report.bytes
    assert seen.metric("iceberg.scan.duration", **named) == 2
    assert seen.metric("iceberg.scan.time_to_first_batch", **named) == 2


def _by_break(scan: ice.Scan) -> Iterator[pa.RecordBatch] | None:
    for _ in scan:
        break
    return None


def _by_closing_the_iterator(scan: ice.Scan) -> Iterator[pa.RecordBatch] | None:
    batches = iter(scan)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    return None


def _by_closing_the_scan(scan: ice.Scan) -> Iterator[pa.RecordBatch] | None:
    batches = iter(scan)
    next(batches)
    scan.close()
    return batches  # kept: nothing is collected


def _by_losing_the_reader(scan: ice.Scan) -> Iterator[pa.RecordBatch] | None:
    reader = scan.to_reader()
    reader.read_next_batch()
    del reader
    gc.collect()
    return None


@pytest.mark.parametrize(
    "stop", [_by_break, _by_closing_the_iterator, _by_closing_the_scan, _by_losing_the_reader]
)
def test_the_span_ends_when_the_consumer_stops_early(
    table: Table, seen: Seen, stop: Callable[[ice.Scan], Iterator[pa.RecordBatch] | None]
) -> None:
    kept = stop(ice.scan(table, batch_size=100))
    (span,) = seen.spans("iceberg.scan")
    assert (span.attributes or {})["iceberg.scan.outcome"] == "stopped"
    assert span.status.is_unset
    assert seen.metric("iceberg.scan.duration", scan__outcome="stopped") == 1
    assert kept is None or next(kept, None) is None
    assert len(seen.spans("iceberg.scan")) == 1


def test_the_span_of_a_failed_scan_names_the_error_and_no_more(table: Table, seen: Seen) -> None:
    missing = data_file_paths(table)[-1]
    Path(missing.removeprefix("file://")).unlink()
    with pytest.raises(ice.FileMissingError):
        list(ice.scan(table))
    (span,) = seen.spans("iceberg.scan")
    assert (span.attributes or {})["error.type"] == "FileMissingError"
    assert (span.attributes or {})["iceberg.scan.outcome"] == "error"
    assert not span.status.is_ok
    assert span.status.description == "FileMissingError"
    assert not span.events
    assert seen.metric("iceberg.scan.duration", scan__outcome="error") == 1


def test_a_plan_that_fails_ends_its_span_too(table: Table, seen: Seen) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(ice.IcestreamError):
        list(ice.scan(table))
    (span,) = seen.spans("iceberg.scan")
    assert not span.status.is_ok


def test_an_error_of_the_consumer_is_not_the_scans(table: Table, seen: Seen) -> None:
    def consume() -> None:
        for _ in ice.scan(table):
            raise KeyError("the consumer's own")

    with pytest.raises(KeyError):
        consume()
    gc.collect()
    assert seen.span("iceberg.scan")["iceberg.scan.outcome"] == "stopped"


def test_the_span_is_inside_the_applications_and_does_not_become_current(
    table: Table, seen: Seen
) -> None:
    tracer = seen.tracers.get_tracer("application")
    with tracer.start_as_current_span("job") as job:
        for _ in ice.scan(table):
            assert trace.get_current_span() is job
    (span,) = seen.spans("iceberg.scan")
    assert span.parent is not None
    assert span.parent.span_id == job.get_span_context().span_id


class _Broken(SpanProcessor):
    def on_start(self, span: object, parent_context: object = None) -> None:
        raise RuntimeError("no exporter here")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("no exporter here")


def test_a_broken_exporter_breaks_neither_a_scan_nor_an_append(
    table: Table, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = seen.tracers._active_span_processor
    monkeypatch.setattr(processor, "_span_processors", (_Broken(),))
    report = ice.append(table, ice.scan(table))
    assert report.rows_inserted == _FILES * _FILE_ROWS
    assert not seen.spans("iceberg.scan")
