"""One merge in a fresh process: `python -m benchmarks.cases.merge_case '<json>'`.

`benchmarks.merge` starts it. The last line of stdout is the result, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

# Import icestream first, as the docs recommend, so that it chooses Arrow's allocator.
if '"engine": "icestream' in sys.argv[-1]:
    import icestream  # noqa: F401

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.data.merge_tables import Prepared, Source, Target
from benchmarks.measure.peaks import PeakMeter

TARGETS = {
    "narrow": Target("narrow", 10_000_000),
    "wide": Target("wide", 1_000_000, files=20, columns=400),
    "texts": Target("texts", 10_000_000, text_key=True),
}
Figures = dict[str, object]


@dataclass(frozen=True, slots=True)
class MergeCase:
    """The merge to measure."""

    root: str
    name: str
    engine: str
    target: str
    rows: int
    memory: str
    clustered: bool = False
    scale: float = 1.0
    baseline: str | None = None
    """Commit of icestream to measure. None for the current source."""

    def scaled_target(self) -> Target:
        target = TARGETS[self.target]
        files = max(2, int(target.files * min(1.0, 100 * self.scale)))
        return replace(target, rows=max(files, int(target.rows * self.scale)), files=files)

    def source(self) -> Source:
        return Source(max(10, int(self.rows * self.scale)), self.clustered)


def measure(case: MergeCase) -> Figures:
    """Merge, and return figures, peaks and the changes to the table."""
    run = ENGINES[case.engine](case)
    meter = PeakMeter()
    cpu_before, began = time.process_time(), time.perf_counter()
    figures = run()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu_before,
        **asdict(meter.peaks()),
        **figures,
    }


def _icestream(mode: str) -> Callable[[MergeCase], Callable[[], Figures]]:
    def prepare(case: MergeCase) -> Callable[[], Figures]:
        import icestream as ice

        prepared = Prepared(Path(case.root), case.scaled_target())
        table = prepared.table()
        before = len(table.metadata.snapshots)
        on = ["code", "region", "id"] if case.target == "texts" else "id"

        def run() -> Figures:
            report = ice.merge(
                table,
                case.source().reader(case.scaled_target()),
                on=on,
                write_mode=mode,
                memory=case.memory,
            )
            return {
                "snapshots": len(table.metadata.snapshots) - before,
                "updated": report.rows_updated,
                "inserted": report.rows_inserted,
                "files_removed": report.files_removed,
                "files_read": report.files_read,
                "spilled_bytes": report.bytes_spilled,
                "held_bytes": report.peak_bytes_held,
            }

        return run

    return prepare


def _compact(case: MergeCase) -> Callable[[], Figures]:
    import icestream as ice

    table = Prepared(Path(case.root), case.scaled_target()).table()
    before = len(table.metadata.snapshots)

    def run() -> Figures:
        report = ice.compact(table, memory=case.memory)
        return {
            "snapshots": len(table.metadata.snapshots) - before,
            "files_removed": report.files_removed,
        }

    return run


def _pyiceberg(case: MergeCase) -> Callable[[], Figures]:
    table = Prepared(Path(case.root), case.scaled_target()).table()
    before = len(table.metadata.snapshots)

    def run() -> Figures:
        done = table.upsert(case.source().reader(case.scaled_target()).read_all(), ["id"])
        return {
            "snapshots": len(table.metadata.snapshots) - before,
            "updated": done.rows_updated,
            "inserted": done.rows_inserted,
        }

    return run


def _deltalake(case: MergeCase) -> Callable[[], Figures]:
    from deltalake import DeltaTable, write_deltalake

    target = case.scaled_target()
    folder = Path(case.root, "merge", "delta")
    shutil.rmtree(folder, ignore_errors=True)
    for batches in target.file_batches():
        write_deltalake(str(folder), batches, mode="append")
    table = DeltaTable(str(folder))

    def run() -> Figures:
        merger = table.merge(
            case.source().reader(target), "s.id = t.id", source_alias="s", target_alias="t"
        )
        done = merger.when_matched_update_all().when_not_matched_insert_all().execute()
        return {
            "snapshots": 1,
            "updated": done["num_target_rows_updated"],
            "inserted": done["num_target_rows_inserted"],
            "files_removed": done["num_target_files_removed"],
        }

    return run


ENGINES = {
    "pyiceberg": _pyiceberg,
    "icestream": _icestream("copy-on-write"),
    "icestream-mor": _icestream("merge-on-read"),
    "icestream-compact": _compact,
    "deltalake": _deltalake,
}


def main() -> None:
    """Measure the case given as JSON, and print the figures as JSON."""
    figures = measure(MergeCase(**json.loads(sys.argv[1])))
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
