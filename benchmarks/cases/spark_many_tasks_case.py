"""A load of many tiny files with one task for each, on many executors that are killed at random.

`python -m benchmarks.cases.spark_many_tasks_case --files 200,2000 --executors 6 --kills 5` starts
a cluster of processes on this machine. Kills are spread over the last load. It checks that all rows
are in the table once, and prints a line of JSON for each number of files.
"""

from __future__ import annotations

import icestream as ice  # import first, so that it chooses Arrow's allocator

# isort: split
import argparse
import json
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import icestream.spark as ice_spark
from benchmarks.data.tables import open_catalog
from icestream.memory.machine import resident_bytes
from icestream.spark.setup.installed import pyspark_module

_ROWS_PER_FILE = 10
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_SOURCE = "icestream.pipeline.engines.direct_source"
_FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Killer(threading.Thread):
    """Kills a random executor when another share of the tasks is done.

    Args:
        spark: The session.
        data: The folder of the table's files, one for each task that is done.
        tasks: Number of tasks.
        kills: Number of kills.
    """

    def __init__(self, spark: Any, data: Path, tasks: int, kills: int) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self._jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
        self._data = data
        self._moments = [tasks * (number + 1) // (kills + 1) for number in range(kills)]

    def run(self) -> None:
        for moment in self._moments:
            while sum(1 for _ in self._data.glob("*.parquet")) < moment:
                time.sleep(0.2)
            while not (executors := _executors(self._jvm)):
                time.sleep(0.2)
            with suppress(ProcessLookupError):
                os.kill(random.choice(executors), signal.SIGKILL)
                self.killed += 1


def _executors(jvm: int) -> list[int]:
    """The JVMs that the driver's JVM has started."""
    text = Path(f"/proc/{jvm}/task").iterdir()
    children = [pid for task in text for pid in (task / "children").read_text().split()]
    running = []
    for pid in children:
        with suppress(FileNotFoundError, ProcessLookupError):
            if _EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                running.append(int(pid))
    return running


def _session(executors: int) -> Any:
    home = Path(pyspark_module().__file__).parent
    core = next((home / "jars").glob("spark-core_*.jar")).name
    os.environ["SPARK_HOME"] = str(home)
    os.environ["SPARK_SCALA_VERSION"] = core.removeprefix("spark-core_").partition("-")[0]
    config = {
        "spark.executor.memory": "480m",
        "spark.driver.extraJavaOptions": _FAST_JAVA,
        "spark.executor.extraJavaOptions": _FAST_JAVA,
        "spark.deploy.maxExecutorRetries": "-1",
        "spark.task.maxFailures": "20",
    }
    return ice_spark.session(f"local-cluster[{executors},1,480]", memory="32MB", config=config)


def _sources(folder: Path, files: int) -> None:
    folder.mkdir()
    for number in range(files):
        ids = range(number * _ROWS_PER_FILE, (number + 1) * _ROWS_PER_FILE)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "price": [n / 8 for n in ids]})
        pq.write_table(rows, folder / f"{number:05d}.parquet")


def _load(spark: Any, root: Path, files: int, kills: int) -> dict[str, Any]:
    """Load so many files, and measure."""
    catalog = open_catalog(root)
    name = f"bench.many{files}"
    table = catalog.create_table(name, pa.schema([("id", pa.int64()), ("price", pa.float64())]))
    sources = root / f"sources{files}"
    _sources(sources, files)
    killer = Killer(spark, Path(table.location().removeprefix("file://"), "data"), files, kills)
    Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the current size
    before = resident_bytes("self", "VmRSS") or 0
    began, cpu = time.monotonic(), time.process_time()
    with (
        mock.patch(f"{_SOURCE}.LEAST_BYTES_PER_TASK", 1),
        mock.patch(f"{_SOURCE}.wanted_tasks", return_value=files),
    ):
        killer.start()
        report = ice.load(sources, name, catalog=catalog, spark=spark, state="")
    assert isinstance(report, ice.LoadReport)
    ids = sorted(n for batch in ice.scan(table.refresh()) for n in batch["id"].to_pylist())
    peak = resident_bytes("self", "VmHWM") or 0
    result = {
        "files": files,
        "direct": report.direct,
        "files_added": report.files_added,
        "exact": ids == list(range(files * _ROWS_PER_FILE)),
        "snapshots": len(table.metadata.snapshots),
        "executors_killed": killer.killed,
        "seconds": round(time.monotonic() - began, 1),
        "driver_cpu_seconds": round(time.process_time() - cpu, 1),
        "driver_growth_bytes": peak - before,
        "orphans": len(ice.orphans(table, older_than=0, only_catalog=True).files),
    }
    catalog.close()
    return result


def main() -> None:
    """Run the loads, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", default="200,2000")
    parser.add_argument("--executors", type=int, default=6)
    parser.add_argument("--kills", type=int, default=5)
    given = parser.parse_args()
    counts = [int(text) for text in given.files.split(",")]
    spark = _session(given.executors)
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            kills = given.kills if count == counts[-1] else 0
            print(json.dumps(_load(spark, Path(folder), count, kills)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
