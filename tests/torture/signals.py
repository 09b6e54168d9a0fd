"""Ctrl-C, SIGTERM, and pauses (SIGSTOP and SIGCONT) in the middle of operations."""

from __future__ import annotations

import os
import signal
import time
from random import Random

from tests.torture.attack import Settings, Verdict
from tests.torture.herd import Herd
from tests.torture.rounds import Round, rounds

_FAULTS, _SECONDS = 30, 60
_KINDS = (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGSTOP)


def attack(settings: Settings) -> Verdict:
    """Signals at random moments: processes that Ctrl-C reached go on with the next operation."""
    verdict = Verdict()
    for each in rounds(settings, verdict, "signals", faults=_FAULTS, seconds=_SECONDS):
        _signalled(each)
    return verdict


def _signalled(each: Round) -> None:
    herd = Herd(each.place, each.journals, each.random)
    each.run(herd, lambda pid: _signal(pid, each.random))


def _signal(pid: int, random: Random) -> int:
    time.sleep(random.uniform(0.0, 0.2))
    kind = random.choice(_KINDS)
    os.kill(pid, kind)
    if kind == signal.SIGSTOP:
        time.sleep(random.uniform(0.05, 1.0))
        os.kill(pid, signal.SIGCONT)
    return 1
