"""Several processes change a table, and die by SIGKILL at any moment."""

from __future__ import annotations

import os
import signal
import time
from random import Random

from tests.support.postgres import postgres_binaries, postgres_server
from tests.torture.attack import Settings, Verdict
from tests.torture.herd import Herd
from tests.torture.place import Place
from tests.torture.rounds import Round, rounds


def on_sqlite(settings: Settings) -> Verdict:
    """The catalog is a file."""
    verdict = Verdict()
    for each in rounds(settings, verdict, "kills-sqlite", faults=30, seconds=60):
        _killed(each)
    return verdict


def on_postgres(settings: Settings) -> Verdict:
    """The catalog is a server, which goes on when its clients die."""
    verdict = Verdict()
    if postgres_binaries() is None:
        verdict.left_out = "PostgreSQL's server is not installed: apt install postgresql"
        return verdict
    with postgres_server() as uri:

        def place(folder: os.PathLike[str]) -> Place:
            table = "db.t" + os.fspath(folder).rpartition("-")[2]
            return Place("postgres", uri, f"file://{folder}/warehouse", table=table)

        for each in rounds(settings, verdict, "kills-postgres", faults=20, seconds=50, place=place):
            _killed(each)
    return verdict


def _killed(each: Round) -> None:
    herd = Herd(each.place, each.journals, each.random, dies=_step_of_death)
    each.run(herd, lambda pid: _kill(pid, each.random))


def _step_of_death(random: Random) -> int | None:
    """Half of the workers die between two steps of their own choice."""
    return random.randrange(1, 150) if random.random() < 0.5 else None


def _kill(pid: int, random: Random) -> int:
    if random.random() < 0.4:
        return 0  # others get their chance to die by their own hand
    time.sleep(random.uniform(0.0, 0.2))
    os.kill(pid, signal.SIGKILL)
    return 1
