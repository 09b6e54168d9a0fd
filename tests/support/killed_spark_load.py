"""A load on embedded Spark whose driver dies by SIGKILL: run as a process of its own.

`python -m tests.support.killed_spark_load FOLDER TABLE STEP MODE` says `ready` when Spark runs, and
`done` when the load is. It dies at the step, unless that is empty; whoever started it may kill it
at any time. It is the leader of a session, by which everything that it has started is found.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.pipeline import load_execution
from icestream.pipeline.request.load_spec import LoadMode
from tests.support.process import REPOSITORY
from tests.support.tables import make_catalog

STEPS = (
    "after keys are checked",
    "after files are written",
    "before the commit",
    "after the commit",
    "before the report",
)
_SETTINGS = {"spark.sql.shuffle.partitions": "2"}
_MODULE = "tests.support.killed_spark_load"
_END_SECONDS = 60
_RUN_SECONDS = 240


class KilledDriver:
    """A driver that is killed, and what it leaves running. As a context it leaves nothing.

    Args:
        *arguments: The folder, the table, the step and the mode; or those of another module.
        module: What the process runs.
    """

    def __init__(self, *arguments: object, module: str = _MODULE) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._lines = self._process.stdout

    def __enter__(self) -> KilledDriver:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end(self._members())
        self._process.wait(_END_SECONDS)
        self._lines.close()

    def await_line(self, line: str) -> None:
        """Read on until the process has said that, or nothing more."""
        for each in self._lines:
            if each.strip() == line:
                return

    def ended(self) -> int:
        """Wait for the end of the driver, and return its exit code."""
        return self._process.wait(_RUN_SECONDS)

    def kill(self) -> None:
        """Kill the driver, and nothing else."""
        self._process.kill()

    def left(self) -> list[str]:
        """The commands of what the driver has started and does not end, though it has time to."""
        end = time.monotonic() + _END_SECONDS
        while (running := self._members()) and time.monotonic() < end:
            time.sleep(0.05)
        return list(running.values())

    @staticmethod
    def _end(running: Iterable[int]) -> None:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _members(self) -> dict[int, str]:
        """The processes of the driver's session that run."""
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state != "Z":
                    found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found


def load(
    folder: Path, table: str, catalog: Catalog, spark: Any, mode: LoadMode = "merge"
) -> ice.LoadReport:
    """Load `FOLDER/changes` into a table, under an id of its own."""
    report = ice.load(
        folder / "changes",
        table,
        mode=mode,
        keys="id" if mode == "merge" else None,
        load_id="the changes",
        catalog=catalog,
        spark=spark,
        state=folder / "state",
    )
    assert isinstance(report, ice.LoadReport)
    return report


def _kill_at(step: str, mode: LoadMode) -> None:
    from icestream.spark.verbs import merge_frame
    from icestream.spark.writing import written_frame
    from icestream.spark.writing.keyed_frame import KeyedFrame

    when, _, what = step.partition(" ")
    home, name = {
        "keys are checked": (KeyedFrame, "check"),
        "files are written": (
            (merge_frame, "run_merge") if mode == "merge" else (written_frame, "_run")
        ),
        "the commit": (SqlCatalog, "commit_table"),
        "the report": (load_execution, "store_report"),
    }[what]
    real: Callable[..., Any] = getattr(home, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        if when == "after":
            real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(home, name, killed)


def main(folder: Path, table: str, step: str = "", mode: LoadMode = "merge") -> None:
    import icestream.spark as ice_spark

    spark = ice_spark.session("local[2]", memory="64MB", config=_SETTINGS)
    if step:
        _kill_at(step, mode)
    catalog = make_catalog(folder)
    print("ready", flush=True)  # noqa: T201
    load(folder, table, catalog, spark, mode)
    print("done", flush=True)  # noqa: T201
    catalog.close()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
