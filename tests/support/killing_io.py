"""A real FileIO that kills the executor it runs in, once, in the middle of writing; its worker too.

A catalog with the property `py-io-impl` set to `PATH` makes it. It acts only in Python workers of
Spark, and only while the file that the property `test.kill-flag` names is there: whoever takes
that file away is the one that kills. If `WORKER` is in it, the cluster's worker dies as well; with
`STOP`, nothing dies, and the task stops for long.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

PATH = "tests.support.killing_io.KillingFileIO"
FLAG = "test.kill-flag"
WORKER = "worker"
STOP = "stop"
AWAKE = ".awake"
_TAKEN = ".taken"
_STOP_SECONDS = 60

_written: set[str] = set()


class KillingFileIO(PyArrowFileIO):
    """Kills when a task begins another data file after its first, which is left then."""

    def new_output(self, location: str) -> OutputFile:
        if location.endswith(".parquet") and is_worker():
            path = location.removeprefix("file://")
            # All files of an attempt have the same name but for the number at the end.
            mates = [other for other in _written - {path} if _attempt(other) == _attempt(path)]
            _written.add(path)
            flag = Path(self.properties[FLAG])
            if any(Path(mate).exists() for mate in mates) and _take(flag):
                told = flag.with_suffix(_TAKEN).read_text()
                if told == STOP:
                    time.sleep(_STOP_SECONDS)
                    flag.with_suffix(AWAKE).touch()
                else:
                    kill_executor(with_worker=told == WORKER)
        return super().new_output(location)


def _attempt(path: str) -> str:
    return path.rpartition("-")[0]


def is_worker() -> bool:
    """Whether this process is a Python worker of Spark."""
    return b"pyspark.daemon" in Path(f"/proc/{os.getppid()}/cmdline").read_bytes()


def _take(flag: Path) -> bool:
    try:
        flag.rename(flag.with_suffix(_TAKEN))
    except FileNotFoundError:
        return False
    return True


def kill_executor(*, with_worker: bool) -> None:
    """The JVM first, then all its Python workers: none of them can clean up."""
    daemon = os.getppid()
    executor = _parent(daemon)
    others = [pid for pid in _children(daemon) if pid != os.getpid()]
    if with_worker:
        os.kill(_parent(executor), signal.SIGKILL)
    for pid in (executor, daemon, *others, os.getpid()):
        os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in text.split()]
