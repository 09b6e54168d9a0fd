"""A wide load through dlt in a small container: `python -m benchmarks.dlt_load --scale 3GB`.

A dlt pipeline with the destination `filesystem` loads numbers in 400 columns into an Iceberg table,
once with dlt's own writer and once with icestream's. Each pipeline runs whole in a memory cgroup
with a hard limit. "processes" is the peak of its memory, sampled five times a second.

With `--upsert`, a pipeline first loads 200,000 rows of three columns, and then upserts 10,000 rows,
of which half are new. Only the upsert is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import StaticTable

import icestream as ice
from benchmarks.measure.memory_group import MemoryGroup, memory_group
from benchmarks.measure.results import print_table
from benchmarks.measure.runner import REPOSITORY
from icestream.memory.budget import parse_bytes

COLUMNS = 400
WRITERS = ("icestream", "dlt")
_BATCH_ROWS = 5_000
_LOOK_SECONDS = 0.2


def main() -> None:
    """Run a pipeline with each writer, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", default="3GB", help="size of the Parquet files")
    parser.add_argument("--limit", default="4GB", help="limit of the memory cgroup")
    parser.add_argument("--memory", default="512MB", help="memory limit of icestream")
    parser.add_argument(
        "--root", type=Path, default=REPOSITORY / ".bench" / "dlt_load", help="folder for data"
    )
    parser.add_argument("--upsert", action="store_true", help="measure an upsert instead")
    parser.add_argument("--writer", choices=WRITERS, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = parse_bytes(options.scale, name="scale") // (COLUMNS * 8)
    if options.writer is not None:
        pipeline = _pipeline(options.root, options.writer, options.memory)
        if options.upsert:
            print(json.dumps(run_upsert(pipeline)))
        else:
            pipeline.run(_batches(rows), table_name="numbers", table_format="iceberg")
        return
    if options.upsert:
        print_table(["writer", "CPU-s", "snapshots"], [_upserted(options, w) for w in WRITERS])
        return
    results = [_measured(options, writer, rows) for writer in WRITERS]
    print_table(["writer", "exit", "rows", "seconds", "CPU-s", "processes-MB", "kills"], results)


def run_upsert(pipeline: Any) -> list[float]:
    """Load and upsert in this process, and return the CPU time and the snapshots of the upsert."""
    from dlt.common.libs.pyiceberg import get_iceberg_tables

    def load(start: int, stop: int, value: int, disposition: Any) -> int:
        ids = range(start, stop)
        columns = {"id": ids, "value": [value] * len(ids), "text": [f"text {n}" for n in ids]}
        pipeline.run(
            pa.table({name: pa.array(values) for name, values in columns.items()}),
            table_name="numbers",
            table_format="iceberg",
            primary_key="id",
            write_disposition=disposition,
        )
        return len(get_iceberg_tables(pipeline)["numbers"].metadata.snapshots)

    before = load(0, 200_000, 1, "append")
    started = time.process_time()
    after = load(195_000, 205_000, 2, {"disposition": "merge", "strategy": "upsert"})
    return [time.process_time() - started, after - before]


def _pipeline(folder: Path, writer: str, memory: str) -> Any:
    import dlt

    if writer == "icestream":
        from icestream.integrations.dlt_filesystem import filesystem

        destination: Any = filesystem(f"file://{folder}/lake", memory=memory)
    else:
        destination = dlt.destinations.filesystem(f"file://{folder}/lake")
    return dlt.pipeline(
        "wide", destination=destination, dataset_name="raw", pipelines_dir=str(folder / "state")
    )


def _batches(rows: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(7)
    for start in range(0, rows, _BATCH_ROWS):
        count = min(_BATCH_ROWS, rows - start)
        columns = [pa.array(random.random(count)) for _ in range(COLUMNS - 1)]
        names = [f"c{n}" for n in range(COLUMNS - 1)]
        yield pa.table([pa.array(range(start, start + count)), *columns], ["id", *names])


def _command(options: argparse.Namespace, writer: str) -> tuple[list[str], dict[str, str]]:
    """A command that runs the pipeline in an empty folder, and its environment."""
    shutil.rmtree(options.root, ignore_errors=True)
    options.root.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.dlt_load", "--writer", writer]
    command += ["--root", str(options.root), "--scale", options.scale, "--memory", options.memory]
    settings = {
        "DLT_DATA_DIR": str(options.root / "dlt"),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "CRITICAL",
        "LOAD__DELETE_COMPLETED_JOBS": "true",
    }
    return command, os.environ | settings


def _upserted(options: argparse.Namespace, writer: str) -> list[str]:
    command, environment = _command(options, writer)
    output = subprocess.check_output(
        [*command, "--upsert"], cwd=REPOSITORY, env=environment, text=True
    )
    shutil.rmtree(options.root)
    seconds, snapshots = json.loads(output.splitlines()[-1])
    return [writer, f"{seconds:.1f}", str(snapshots)]


def _measured(options: argparse.Namespace, writer: str, rows: int) -> list[str]:
    command, environment = _command(options, writer)
    began, before = time.monotonic(), os.times()
    peaks = [0]
    with memory_group(parse_bytes(options.limit, name="limit")) as group:
        ended = threading.Event()
        meter = threading.Thread(target=_meter, args=(group, ended, peaks), daemon=True)
        meter.start()
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            preexec_fn=group.join,
            check=False,
        )
        ended.set()
        meter.join()
        kills = group.kills()
    seconds, after = time.monotonic() - began, os.times()
    if done.returncode not in (0, -9):
        print(done.stderr[-2000:], file=sys.stderr)
    loaded = _rows(options.root) if done.returncode == 0 else 0
    shutil.rmtree(options.root, ignore_errors=True)
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    figures = [done.returncode, loaded, f"{seconds:.0f}", f"{cpu:.0f}", peaks[0] // 10**6, kills]
    return [writer, *(str(figure) for figure in figures)]


def _meter(group: MemoryGroup, ended: threading.Event, peaks: list[int]) -> None:
    while not ended.wait(_LOOK_SECONDS):
        peaks[0] = max(peaks[0], group.process_bytes())


def _rows(folder: Path) -> int:
    """The rows of the table; each id is there once."""
    metadata = max((folder / "lake" / "raw" / "numbers" / "metadata").glob("*.metadata.json"))
    table = StaticTable.from_metadata(str(metadata))
    rows = total = 0
    with ice.scan(table, columns=["id"], memory="256MB") as batches:
        for batch in batches:
            rows += batch.num_rows
            total += int(np.sum(batch["id"].to_numpy()))
    assert total == rows * (rows - 1) // 2
    return rows


if __name__ == "__main__":
    main()
