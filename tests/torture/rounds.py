"""Rounds of an attack: a fresh table each, so that none has a long history."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.torture.attack import Settings, Verdict
from tests.torture.child import start
from tests.torture.herd import Herd, finish
from tests.torture.history import examine
from tests.torture.place import Place, create

_ROUND_FAULTS = 12
_LAST_OPERATIONS = 5


@dataclass(slots=True)
class Round:
    """One table, which is there and has some rows.

    Attributes:
        place: The table, as workers reach it.
        calm: The table, as it is reached when the faults are over.
        folder: For whatever the round needs.
        random: Decides.
        faults: How many there are to be.
        seconds: The longest that it may take.
        injected: How many there were.
        problems: What went wrong, the table aside.
    """

    place: Place
    calm: Place
    folder: Path
    random: Random
    faults: int
    seconds: float
    injected: int
    problems: list[str]

    @property
    def journals(self) -> Path:
        """Where the workers' journals go."""
        return self.folder / "journals"

    def run(self, herd: Herd, fault: Callable[[int], int]) -> None:
        """Let workers change the table while something is done to them."""
        self.injected += herd.run(self.faults, seconds=self.seconds, fault=fault)
        self.problems += herd.problems


def rounds(
    settings: Settings,
    verdict: Verdict,
    name: str,
    *,
    faults: int,
    seconds: float,
    place: Callable[[Path], Place] | None = None,
    calm: Callable[[Path], Place] | None = None,
) -> Iterator[Round]:
    """Make tables until there were enough faults; look at each when its round is over.

    Args:
        settings: The attack's.
        verdict: Gets what was found.
        name: Name of the attack.
        faults: How many there are to be at scale 1.
        seconds: How long that may take at scale 1.
        place: Where a table goes; a SQLite catalog by default.
        calm: Where the same table is reached without faults; `place` by default.
    """
    wanted, number = settings.faults(faults), 0
    deadline = time.monotonic() + settings.seconds(seconds)
    while verdict.faults < wanted and (number == 0 or time.monotonic() < deadline):
        number += 1
        random = settings.random(name, number)
        folder = settings.folder / f"{name}-{number}"
        folder.mkdir(parents=True)
        disturbed = (place or on_sqlite)(folder).variant(random)
        undisturbed = (calm or place or on_sqlite)(folder).like(disturbed)
        _in_child(lambda where=undisturbed, random=random: create(where, random))
        each = Round(
            disturbed,
            undisturbed,
            folder,
            random,
            faults=min(_ROUND_FAULTS, wanted - verdict.faults),
            seconds=max(10.0, deadline - time.monotonic()),
            injected=0,
            problems=[],
        )
        yield each
        finish(undisturbed, each.journals, f"{random.random()}", _LAST_OPERATIONS)
        verdict.faults += each.injected
        verdict.add(each.problems, {})
        verdict.add(*examine(undisturbed, each.journals))
    if verdict.faults < min(wanted, 1):
        verdict.problems.append("no fault was injected: the attack has shown nothing")


def on_sqlite(folder: Path) -> Place:
    """A catalog in a file, and tables beside it."""
    return Place("sqlite", str(folder / "catalog.db"), f"file://{folder}/warehouse")


def _in_child(work: Callable[[], None]) -> None:
    _, status = os.waitpid(start(work), 0)
    if status:
        raise RuntimeError("the table of the attack could not be made; see above")
