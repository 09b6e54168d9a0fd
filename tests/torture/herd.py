"""Several workers on one table, and what is done to them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.torture.child import is_running, start
from tests.torture.place import Place
from tests.torture.worker import STOP_FILE, Orders, Prepare, work

_STOP_SECONDS = 120
_PACE_SECONDS = 5


@dataclass(slots=True)
class Herd:
    """Workers that are started again when they die.

    Attributes:
        place: The table.
        folder: Folder of the workers' journals.
        random: Decides.
        size: How many workers there are at a time.
        dies: Whether workers kill themselves, and at which step.
        prepare: Called in each worker before it begins.
        problems: What went wrong with processes.
        deaths: How many workers have ended before they were told to stop.
    """

    place: Place
    folder: Path
    random: Random
    size: int = 3
    dies: Callable[[Random], int | None] = lambda random: None
    prepare: Prepare | None = None
    problems: list[str] = field(default_factory=list)
    deaths: int = 0
    _running: dict[int, Orders] = field(default_factory=dict)
    _started: int = 0

    def run(self, faults: int, *, seconds: float, fault: Callable[[int], int]) -> int:
        """Keep the workers busy until there were enough faults, or time is up.

        Args:
            faults: How many faults there are to be, deaths by own hand included.
            seconds: The longest that this may take.
            fault: Called after every few operations with the process id of a worker. It may do
                something to that worker, and returns how many faults that was.

        Returns:
            How many faults there were.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        give_up = time.monotonic() + seconds
        injected = 0
        try:
            while injected + self.deaths < faults and time.monotonic() < give_up:
                self._fill()
                self._let_work(self.random.randrange(1, 5))
                self._reap()
                busy = [pid for pid, orders in self._running.items() if self._begun(orders)]
                if busy:
                    injected += fault(self.random.choice(busy))
                self._reap()
        finally:
            self._stop()
        return injected + self.deaths

    def _begun(self, orders: Orders) -> int:
        """How many operations a worker has begun."""
        journal = self.folder / f"{orders.name}.journal"
        return journal.read_text().count('"begun"') if journal.exists() else 0

    def _let_work(self, operations: int) -> None:
        """Wait until some more operations have begun, on a machine however slow."""
        workers = list(self._running.values())
        goal = sum(map(self._begun, workers)) + operations
        give_up = time.monotonic() + _PACE_SECONDS
        while sum(map(self._begun, workers)) < goal and time.monotonic() < give_up:
            time.sleep(0.02)
            self._reap()
            if len(self._running) < self.size:
                return

    def _fill(self) -> None:
        while len(self._running) < self.size:
            self._started += 1
            orders = Orders(
                place=self.place,
                folder=self.folder,
                name=f"w{self._started}",
                seed=f"{self.random.random()}",
                dies_at_step=self.dies(self.random),
                prepare=self.prepare,
            )
            self._running[start(lambda orders=orders: work(orders))] = orders

    def _reap(self) -> None:
        for pid, orders in list(self._running.items()):
            if not is_running(pid):
                del self._running[pid]
                self.deaths += orders.dies_at_step is not None

    def _stop(self) -> None:
        """Let the workers end by themselves: what they do is to be finished."""
        (self.folder / STOP_FILE).touch()
        give_up = time.monotonic() + _STOP_SECONDS
        while self._running and time.monotonic() < give_up:
            self._reap()
            time.sleep(0.01)
        for pid, orders in self._running.items():
            self.problems.append(f"worker {orders.name} did not end in {_STOP_SECONDS} s: it hangs")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()
        (self.folder / STOP_FILE).unlink()


def finish(place: Place, folder: Path, seed: str, operations: int) -> None:
    """Change the table some more in one undisturbed worker: it is as good as any table."""
    orders = Orders(place=place, folder=folder, name="last", seed=seed)
    os.waitpid(start(lambda: work(replace(orders, operations=operations))), 0)
