"""One write in a fresh process: `python -m benchmarks.cases.write_case '<json>'`.

`benchmarks.write` starts it. The last line of stdout is the result, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

# Import icestream first, as the docs recommend, so that it chooses Arrow's allocator.
if '"engine": "icestream"' in sys.argv[-1]:
    import icestream  # noqa: F401

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from benchmarks.data.streams import STREAMS, Stream
from benchmarks.measure.peaks import PeakMeter

TARGET_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class WriteCase:
    """The write to measure."""

    folder: str
    stream: str
    engine: str
    memory: str
    scale: float = 1.0
    baseline: str | None = None
    """Commit of icestream to measure. None for the current source."""


def measure(case: WriteCase) -> dict[str, object]:
    """Write the stream of the case, and return figures, peaks and the files in storage."""
    stream = STREAMS[case.stream]
    stream = replace(stream, rows=max(stream.batch_rows, int(stream.rows * case.scale)))
    table = _new_table(Path(case.folder), stream)
    write = ENGINES[case.engine](case, stream, table)
    meter = PeakMeter()
    cpu_before, began = time.process_time(), time.perf_counter()
    extra = write()
    seconds = time.perf_counter() - began
    peaks = meter.peaks()
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu_before,
        "rows_written": stream.rows,
        **asdict(peaks),
        **(extra if isinstance(extra, dict) else {}),
        **_in_storage(case, stream, table),
    }


def _new_table(folder: Path, stream: Stream) -> Table:
    folder.mkdir(parents=True)
    catalog = SqlCatalog(
        "bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
    )
    catalog.create_namespace("bench")
    properties = {"write.target-file-size-bytes": str(TARGET_FILE_BYTES)}
    table = catalog.create_table("bench.t", stream.schema(), properties=properties)
    if stream.partitions:
        with table.update_spec() as update:
            update.add_field("part", IdentityTransform(), "part")
    return table


def _in_storage(case: WriteCase, stream: Stream, table: Table) -> dict[str, object]:
    if case.engine == "deltalake":
        sizes = [p.stat().st_size for p in Path(case.folder, "delta").rglob("*.parquet")]
        return {"files": len(sizes), "off_target": None, "snapshots": 1, "manifests": None}
    table.refresh()
    files = table.inspect.data_files().to_pydict()
    sizes = sorted(files["file_size_in_bytes"])
    rows = sum(files["record_count"])
    # Two writers run at once, and the last file of each may be small.
    full = [] if stream.partitions else sizes[2:]
    off_target = [abs(size - TARGET_FILE_BYTES) / TARGET_FILE_BYTES for size in full]
    return {
        "rows": rows,
        "files": len(sizes),
        "bytes": sum(sizes),
        "off_target": max(off_target, default=None),
        "snapshots": len(table.metadata.snapshots),
        "manifests": table.inspect.manifests().num_rows,
    }


def _icestream(case: WriteCase, stream: Stream, table: Table) -> Callable[[], dict[str, object]]:
    import icestream as ice

    def write() -> dict[str, object]:
        report = ice.append(table, stream.reader(), memory=case.memory)
        return {"spilled_bytes": report.bytes_spilled, "held_bytes": report.peak_bytes_held}

    return write


def _pyiceberg(case: WriteCase, stream: Stream, table: Table) -> Callable[[], None]:
    def write() -> None:
        # PyIceberg does not write streams to partitioned tables, so pass a whole table there.
        table.append(stream.reader().read_all() if stream.partitions else stream.reader())

    return write


def _polars(case: WriteCase, stream: Stream, table: Table) -> Callable[[], None]:
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.from_arrow(pa.Table.from_batches([], stream.schema())).schema

    def batches(*_: object) -> Iterator[pl.DataFrame]:
        for batch in stream.batches():
            yield pl.from_arrow(batch)

    frame = register_io_source(batches, schema=schema)
    return lambda: frame.sink_iceberg(table, mode="append")


def _daft(case: WriteCase, stream: Stream, table: Table) -> Callable[[], None]:
    import daft

    # Daft needs the whole table.
    return lambda: daft.from_arrow(stream.reader().read_all()).write_iceberg(table)


def _deltalake(case: WriteCase, stream: Stream, table: Table) -> Callable[[], None]:
    from deltalake import write_deltalake

    parts = {"partition_by": ["part"]} if stream.partitions else {}
    return lambda: write_deltalake(
        str(Path(case.folder, "delta")),
        stream.reader(),
        target_file_size=TARGET_FILE_BYTES,
        **parts,
    )


ENGINES = {
    "pyiceberg": _pyiceberg,
    "icestream": _icestream,
    "polars": _polars,
    "daft": _daft,
    "deltalake": _deltalake,
}


def main() -> None:
    """Measure the case given as JSON, and print the figures as JSON."""
    figures = measure(WriteCase(**json.loads(sys.argv[1])))
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
