"""Large loads in a small container: `python -m benchmarks.big_load --scale 10GB`.

Or `make soak-load SCALE=10GB`. The benchmark generates Parquet files of that size, and loads them
with `icestream load` on embedded Spark: append, replace, and a merge of 1% of the keys. Each load
runs in a memory cgroup with a hard limit for the command, the JVM and Spark's Python workers.
"processes" is their peak, sampled five times a second. "group" also has the page cache of files,
which fills the remaining memory, and which the kernel frees if processes need the memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyiceberg.table import Table

import icestream as ice
from benchmarks.data.big_files import CHANGED, BigFiles
from benchmarks.measure.memory_group import MemoryGroup, memory_group
from benchmarks.measure.results import machine, number, print_table
from benchmarks.measure.runner import REPOSITORY
from icestream.catalogs.lookup import make_local_catalog
from icestream.memory.budget import format_bytes, parse_bytes

HEADER = "load rows seconds MB/s rows/s processes-MB group-MB worker-MB snapshots kills"
TABLE = "big.orders"
# For the input files, the files of two loads, and the files that a merge rewrites.
_DISK_TIMES = 3.3
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class BigLoad:
    """A load, and the expected contents of the table after it."""

    name: str
    sources: str
    options: tuple[str, ...]
    rows: int
    changed: int


def main() -> None:
    """Generate the files, load and check them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--scale", default="10GB", help="size of the Parquet files: 500MB, 10GB, 55GB"
    )
    parser.add_argument(
        "--limit", default="4GB", help="limit of the memory cgroup; 0 for no cgroup"
    )
    parser.add_argument("--memory", default="256MB", help="memory limit of each task")
    parser.add_argument("--master", default="local[2]", help="Spark master")
    parser.add_argument(
        "--loads", type=lambda text: text.split(","), default=None, help="loads to run"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=REPOSITORY / ".bench" / "big_load",
        help="folder for data and results",
    )
    parser.add_argument("--keep", action="store_true", help="keep the files for the next run")
    options = parser.parse_args()
    folder = options.root / options.scale
    files = BigFiles(folder, parse_bytes(options.scale, name="scale"))
    _check_disk(options.root, files)
    try:
        figures = _run(files, options)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print_table(HEADER.split(), [_row(each, files) for each in figures["loads"]])
    results = options.root / "results"
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{time.strftime('%Y%m%d-%H%M%S')}-{options.scale}.json"
    path.write_text(json.dumps(figures, indent=2) + "\n")
    print(path)
    if any(each["wrong"] for each in figures["loads"]):
        sys.exit(1)


def _run(files: BigFiles, options: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    size = files.make()
    print(
        f"{files.rows} rows, {format_bytes(size)}, in {time.monotonic() - began:.0f} s", flush=True
    )
    warehouse = files.folder / "icestream_warehouse"
    shutil.rmtree(warehouse, ignore_errors=True)
    loads = []
    for load in _loads(files):
        if options.loads is not None and load.name not in options.loads:
            continue
        loads.append(_loaded(load, files, options))
        print("  ", *_row(loads[-1], files), *loads[-1]["wrong"], flush=True)
    return {
        "scale": options.scale,
        "limit": options.limit,
        "memory": options.memory,
        "master": options.master,
        "rows": files.rows,
        "bytes": size,
        "loads": loads,
        "machine": machine(),
    }


def _loads(files: BigFiles) -> list[BigLoad]:
    merge = ("--mode", "merge", "--keys", "id")
    rows, after = files.rows, files.rows + files.new_rows
    return [
        BigLoad("append", "orders", ("--mode", "append"), rows, 0),
        BigLoad("replace", "orders", ("--mode", "replace"), rows, 0),
        BigLoad("merge 1%", "changes", merge, after, files.changed_rows + files.new_rows),
    ]


def _loaded(load: BigLoad, files: BigFiles, options: argparse.Namespace) -> dict[str, Any]:
    """Run the command, and check the table."""
    command = [sys.executable, "-m", "icestream", "load", "--json", "--quiet"]
    command += [f"{load.sources}/*.parquet", "--into", TABLE, *load.options]
    command += ["--memory", options.memory, "--master", options.master]
    before = _snapshots(files.folder)
    began = time.monotonic()
    if options.limit == "0":
        done = _call(command, files.folder)
        meter = None
    else:
        with memory_group(parse_bytes(options.limit, name="limit")) as group:
            with _Meter(group) as meter:
                done = _call(command, files.folder, join=group.join)
            meter.finish()
    seconds = time.monotonic() - began
    wrong = [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr[-500:]}"]
    report = json.loads(done.stdout) if done.returncode == 0 else {}
    snapshots = _snapshots(files.folder) - before
    if snapshots != 1:
        wrong.append(f"{snapshots} snapshots")
    if not wrong:
        wrong += _wrong(load, files)
    return {
        "load": load.name,
        "command": " ".join(command[1:]),
        "rows": report.get("rows_read"),
        "seconds": seconds,
        "snapshots": snapshots,
        "process_bytes": meter.process_bytes if meter else None,
        "group_bytes": meter.group_bytes if meter else None,
        "kills": meter.kills if meter else None,
        "wrong": wrong,
        "report": report,
    }


def _call(command: list[str], folder: Path, join: Any = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, preexec_fn=join, check=False
    )


class _Meter:
    """Samples the memory of a group in a thread."""

    def __init__(self, group: MemoryGroup) -> None:
        self._group = group
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.process_bytes = 0
        self.group_bytes = 0
        self.kills = 0

    def __enter__(self) -> _Meter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def finish(self) -> None:
        self.group_bytes = self._group.peak_bytes()
        self.kills = self._group.kills()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self.process_bytes = max(self.process_bytes, self._group.process_bytes())


def _snapshots(folder: Path) -> int:
    table = _table(folder)
    return 0 if table is None else len(table.metadata.snapshots)


def _table(folder: Path) -> Table | None:
    catalog = make_local_catalog(folder)
    try:
        return catalog.load_table(TABLE) if catalog.table_exists(TABLE) else None
    finally:
        catalog.close()


def _wrong(load: BigLoad, files: BigFiles) -> list[str]:
    """Check that the table has each id once, and that the changes are applied."""
    table = _table(files.folder)
    assert table is not None
    rows = total = changed = 0
    with ice.scan(table, columns=["id", "status"], memory="256MB") as batches:
        for batch in batches:
            rows += batch.num_rows
            total += pc.sum(batch["id"]).as_py() or 0
            changed += pc.sum(pc.equal(batch["status"], CHANGED)).as_py() or 0
    expected = (load.rows, load.rows * (load.rows - 1) // 2, load.changed)
    actual = (rows, total, changed)
    return [] if actual == expected else [f"rows, sum of ids, changed: {actual}, not {expected}"]


def _check_disk(root: Path, files: BigFiles) -> None:
    root.mkdir(parents=True, exist_ok=True)
    needed = int(files.total_bytes * _DISK_TIMES)
    free = shutil.disk_usage(root).free
    if free < needed:
        sys.exit(f"{root} has {format_bytes(free)} free, but needs {format_bytes(needed)}")


def _row(figures: dict[str, Any], files: BigFiles) -> list[str]:
    seconds, rows = figures["seconds"], figures["rows"]
    read = figures["report"].get("bytes_read")
    worker = figures["report"].get("peak_worker_bytes")
    return [
        figures["load"],
        str(rows),
        number(seconds, ".1f"),
        number(read / 1e6 / seconds if read else None, ".0f"),
        number(rows / seconds if rows else None, ".0f"),
        *(_megabytes(figures[name]) for name in ("process_bytes", "group_bytes")),
        _megabytes(worker),
        str(figures["snapshots"]),
        str(figures["kills"]),
    ]


def _megabytes(count: int | None) -> str:
    return number(count / 1e6 if count is not None else None, ".0f")


if __name__ == "__main__":
    main()
