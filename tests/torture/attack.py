"""What an attack is given, and what it says in the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard, and how long.

    Attributes:
        seed: Seed of all random choices. It does not decide when processes run.
        scale: Multiplies the number of faults, and the time that an attack may take.
        folder: Where tables go.
    """

    seed: int
    scale: float
    folder: Path

    def random(self, *names: object) -> Random:
        """A source of random numbers of its own for each part of an attack."""
        return Random(":".join(map(str, (self.seed, *names))))

    def faults(self, number: int) -> int:
        """How many faults there are to be, of a number that is meant for scale 1."""
        return max(1, round(number * self.scale))

    def seconds(self, number: float) -> float:
        """How long it may take, of a number that is meant for scale 1."""
        return max(30.0, number * self.scale)


@dataclass(slots=True)
class Verdict:
    """What became of an attack.

    Attributes:
        faults: How many were injected.
        problems: Whatever is wrong.
        left_out: Why the attack was not made; None if it was.
        counts: Further numbers worth a look.
    """

    faults: int = 0
    problems: list[str] = field(default_factory=list)
    left_out: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def add(self, problems: list[str], counts: dict[str, int]) -> None:
        """Add what was found out about one table."""
        self.problems += problems
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def line(self, name: str) -> str:
        """The verdict, as a line."""
        if self.left_out is not None:
            return f"{name:<16} left out  {self.left_out}"
        word = "FAILED" if self.problems else "passed"
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        seconds = time.monotonic() - self.started
        return f"{name:<16} {word}  {self.faults} faults  {seconds:.0f} s  ({counts})"
