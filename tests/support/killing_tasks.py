"""A real FileIO that kills a Python worker, its executor or the driver in the middle of tasks.

A catalog with the property `py-io-impl` set to `PATH` makes it. It acts only in Python workers of
Spark. `plan_kills` says what it kills: each kill happens once.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.support.killing_io import is_worker, kill_executor

PATH = "tests.support.killing_tasks.KillingTasksIO"
FOLDER = "test.kill-folder"
Event = Literal["output", "list", "remove"]
Victim = Literal["worker", "executor", "driver"]
_DRIVER, _TAKEN = "driver.pid", ".taken"
_AUDITED: dict[str, Event] = {"os.scandir": "list", "os.remove": "remove"}
_MOST_DELAY_SECONDS = 0.1

_counts: Counter[str] = Counter()
_folder: list[Path] = []


@dataclass(frozen=True)
class Kill:
    """A kill.

    Attributes:
        victim: What dies.
        event: A worker has begun a data file, or lists a folder or removes a file of the table.
        count: How often that worker has done it by then.
        delayed: Whether the victim dies up to a tenth of a second later.
    """

    victim: Victim
    event: Event = "output"
    count: int = 1
    delayed: bool = False


def plan_kills(folder: Path, kills: Sequence[Kill]) -> None:
    """Have workers kill what is listed, each once."""
    folder.mkdir(exist_ok=True)
    for number, kill in enumerate(kills):
        name = f"{number}-{kill.event}-{kill.count}-{kill.victim}-{int(kill.delayed)}"
        (folder / name).touch()


def name_driver(folder: Path) -> None:
    """In the driver: say which process it is."""
    folder.mkdir(exist_ok=True)
    (folder / _DRIVER).write_text(str(os.getpid()))


def kills_left(folder: Path) -> list[str]:
    """The kills that have not happened."""
    return [p.name for p in folder.iterdir() if p.suffix != _TAKEN and p.name != _DRIVER]


class KillingTasksIO(PyArrowFileIO):
    """Kills when a task begins a data file, lists a folder or removes a file."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        """It was sent to a process."""
        super().__setstate__(state)
        if is_worker():
            if not _folder:
                sys.addaudithook(_audit)
            folder = Path(self.properties[FOLDER])
            if _folder != [folder]:  # The worker has worked for another table before.
                _counts.clear()
            _folder[:] = [folder]

    def new_output(self, location: str) -> OutputFile:
        output = super().new_output(location)
        if location.endswith(".parquet") and is_worker():
            _happened("output", super().new_output(location))
        return output


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    kind = _AUDITED.get(event)
    if kind is not None and "/warehouse/" in str(arguments[0]):
        _happened(kind)


def _happened(event: Event, output: OutputFile | None = None) -> None:
    _counts[event] += 1
    for path in sorted(_folder[0].glob(f"*-{event}-*")):
        _, _, count, victim, delayed = path.stem.split("-")
        if path.suffix == _TAKEN or _counts[event] < int(count):
            continue
        try:
            path.rename(path.with_suffix(_TAKEN))
        except FileNotFoundError:
            continue  # Another worker was faster.
        if delayed == "1":
            threading.Thread(target=_kill_late, args=(victim,)).start()
        else:
            if output is not None and victim != "driver":
                output.create().close()  # A file is there when the worker dies.
            _kill(victim)
        return


def _kill_late(victim: str) -> None:
    time.sleep(random.uniform(0, _MOST_DELAY_SECONDS))
    _kill(victim)


def _kill(victim: str) -> None:
    if victim == "executor":
        kill_executor(with_worker=False)
    pid = os.getpid() if victim == "worker" else int((_folder[0] / _DRIVER).read_text())
    os.kill(pid, signal.SIGKILL)
