"""The goals of icestream for each data set, relative to PyIceberg in the same run."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.measure.results import Result

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Goal:
    """Bounds for a data set and a memory limit. None means no bound."""

    dataset: str
    memory: str
    rate: float | None
    """Minimum rows/s relative to PyIceberg."""
    arrow_mb: int
    rss_mb: int
    first: float | None
    """Maximum time to the first batch relative to PyIceberg."""
    raw_rate: float | None = None
    """Minimum rows/s relative to raw PyArrow."""


GOALS = (
    Goal("a", "128MB", 1.1, 128, 192, 0.4, raw_rate=0.9),
    Goal("b", "64MB", 3.5, 64, 128, 0.01),
    Goal("b8", "128MB", 3.0, 128, 192, 0.01),
    Goal("c", "64MB", 1.8, 64, 128, 0.05),
    Goal("cs", "64MB", 2.5, 64, 128, 0.05),
    Goal("d", "512MB", 1.15, 512, 576, 0.15),
    Goal("d", "1GB", 1.4, 1000, 1064, 0.15),
    Goal("e", "64MB", 2.3, 64, 128, 0.2),
    Goal("f", "128MB", 1.5, 128, 192, 0.2),
    Goal("g", "256MB", None, 256, 320, None),
)


def find_goal(dataset: str, memory: str | None) -> Goal | None:
    """Return the goal for a data set and a limit, or None."""
    return next((goal for goal in GOALS if (goal.dataset, goal.memory) == (dataset, memory)), None)


def judge(goal: Goal, ours: Result, pyiceberg: Result | None, pyarrow: Result | None) -> str:
    """Return `met`, the bounds that were missed, or the bounds that could not be compared."""
    if ours.error:
        return "missed: failed"
    missed, unknown = [], []

    def check(label: str, bound: float | None, value: float | None, at_least: bool) -> None:
        if bound is None:
            return
        if value is None:
            unknown.append(label)
        elif (value < bound) if at_least else (value > bound):
            missed.append(f"{label} {value:.3g} {'<' if at_least else '>'} {bound:g}")

    check("rate", goal.rate, ours.rate_ratio(pyiceberg), at_least=True)
    check("raw rate", goal.raw_rate, ours.rate_ratio(pyarrow), at_least=True)
    check("arrow MB", goal.arrow_mb, ours.arrow_mb, at_least=False)
    check("rss MB", goal.rss_mb, ours.rss_mb, at_least=False)
    check("first", goal.first, ours.first_ratio(pyiceberg), at_least=False)
    if missed:
        return "missed: " + ", ".join(missed)
    return f"met but not compared: {', '.join(unknown)}" if unknown else "met"
