"""Append a stream that is never in memory as a whole to a partitioned table.

    python examples/append_stream.py

The generator stands for any source: a message queue, an API, a database cursor. All of its batches
become one snapshot. If the generator fails, the table stays as it was.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice

SCHEMA = pa.schema([("id", pa.int64()), ("moment", pa.timestamp("us"))])
BATCHES, BATCH_ROWS = 20, 5_000
START = datetime(2026, 1, 1)


def events() -> Iterator[pa.RecordBatch]:
    """Five days of events, one batch at a time."""
    for number in range(BATCHES):
        ids = range(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        moments = [START + timedelta(hours=6 * number, milliseconds=each) for each in ids]
        yield pa.RecordBatch.from_arrays([pa.array(ids), pa.array(moments)], schema=SCHEMA)


def main() -> None:
    """Create a table that is partitioned by day, and append the events twice."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("web")
        table = catalog.create_table("web.events", SCHEMA)
        with table.update_spec() as spec:
            spec.add_field("moment", "day", "moment_day")

        report = ice.append(table, events(), memory="64MB", load_id="events-2026-01")
        print(f"rows appended: {report.rows_inserted}")
        print(f"files, one for each day: {report.files_added}")

        # The same load again, as after a crash: its id is known, so that nothing is added.
        report = ice.append(table, events(), memory="64MB", load_id="events-2026-01")
        print(f"already committed: {report.already_committed}")
        print(f"snapshots: {len(table.refresh().snapshots())}")
        catalog.close()


if __name__ == "__main__":
    main()
