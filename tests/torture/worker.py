"""A process that changes a table at random until it is told to stop, or dies.

Its journal has a line before each operation and one after it, so that what became of an operation
can be held against the table's history: an operation that said it was done is there, one that said
it was refused is not, and one that was cut off is there once or not at all.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

import icestream as ice
from tests.support.leaks import live_threads
from tests.torture.child import Journal
from tests.torture.operation import Operation
from tests.torture.place import Place

STOP_FILE = "stop"
TERMINATED = 143
_ORPHANS_EVERY = 12
# Longer than a commit takes on a machine that is busy with other things.
_ORPHANS_AGE = timedelta(seconds=60)
_THREADS_SECONDS = 10
Prepare = Callable[[Journal, Random], None]


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker is to do.

    Attributes:
        place: The table.
        folder: Folder of the journals, and of the file that says stop.
        name: The worker's name. The names of its operations begin with it.
        seed: Seed of its random choices.
        dies_at_step: It kills itself at this step: a file begun or deleted, a commit sent or
            answered.
        operations: It stops by itself after so many.
        prepare: Called once before the first operation, with the journal and random numbers.
    """

    place: Place
    folder: Path
    name: str
    seed: str
    dies_at_step: int | None = None
    operations: int | None = None
    prepare: Prepare | None = None


class _Interrupt:
    """Ctrl-C and SIGTERM, which reach an operation and never the lines between two."""

    def __init__(self) -> None:
        self.in_operation = False
        self.terminated = False
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._terminate)

    def _interrupt(self, number: int, frame: Any) -> None:
        if self.in_operation:
            raise KeyboardInterrupt

    def _terminate(self, number: int, frame: Any) -> None:
        self.terminated = True
        if self.in_operation:
            sys.exit(TERMINATED)


def work(orders: Orders) -> None:
    """Change the table until the stop file is there."""
    random = Random(orders.seed)
    parent = os.getppid()
    for name in ice.__all__:  # Python makes a RuntimeError of Ctrl-C while a class is made.
        getattr(ice, name)
    interrupt = _Interrupt()
    if orders.dies_at_step is not None:
        _die_at(orders.dies_at_step)
    with orders.place.opened() as catalog:
        table = orders.place.load(catalog)
        journal = Journal(orders.folder / f"{orders.name}.journal")
        if orders.prepare is not None:
            orders.prepare(journal, random)
        number = 0
        while not (orders.folder / STOP_FILE).exists() and os.getppid() == parent:
            if interrupt.terminated or number == orders.operations:
                break
            number += 1
            if number % _ORPHANS_EVERY == 0:
                _tried(journal, interrupt, f"{orders.name}-{number}", lambda: _orphans(table))
                continue
            name = f"{orders.name}-{number}"
            operation = Operation.draw(random, name, partitioned=orders.place.partitioned)
            _tried(journal, interrupt, name, lambda op=operation: op.run(table))
        _note_threads(journal)


def _orphans(table: Table) -> tuple[int, ...]:
    ice.orphans(table, older_than=_ORPHANS_AGE, delete=True)
    return ()


def _tried(
    journal: Journal, interrupt: _Interrupt, name: str, action: Callable[[], tuple[int, ...]]
) -> None:
    journal.note(operation=name, outcome="begun")
    try:
        interrupt.in_operation = True
        snapshots = action()
        interrupt.in_operation = False
        journal.note(operation=name, outcome="done", snapshots=snapshots)
    except ice.CommitUnknownError as error:
        interrupt.in_operation = False
        journal.note(operation=name, outcome="unknown", error=repr(error)[:300])
    except ice.IcestreamError as error:
        interrupt.in_operation = False
        journal.note(operation=name, outcome="refused", error=repr(error)[:300])
    except (KeyboardInterrupt, SystemExit):
        interrupt.in_operation = False
        journal.note(operation=name, outcome="interrupted")
    except BaseException:
        interrupt.in_operation = False
        journal.note(operation=name, outcome="untyped", error=traceback.format_exc())


def _note_threads(journal: Journal) -> None:
    """Threads of operations that have ended must have ended, too."""
    give_up = time.monotonic() + _THREADS_SECONDS
    while True:
        left = [thread.name for thread in live_threads() - {threading.main_thread()}]
        if not left:
            return
        if time.monotonic() > give_up:
            journal.note(operation="end", outcome="threads", error=f"threads are left: {left}")
            return
        time.sleep(0.05)


def _die_at(step: int) -> None:
    """Kill this process at its n-th step, before or after it is done."""
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _watch(PyArrowFileIO, "new_output", count)
    _watch(PyArrowFileIO, "delete", count)
    _watch(SqlCatalog, "commit_table", count)


def _watch(owner: type, name: str, count: Callable[[], None]) -> None:
    real = getattr(owner, name)

    def watched(*args: Any, **options: Any) -> Any:
        count()
        answer = real(*args, **options)
        count()
        return answer

    setattr(owner, name, watched)
