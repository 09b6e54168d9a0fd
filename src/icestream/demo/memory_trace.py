"""How much memory a reader took over time: read in a process of its own, and watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from icestream.errors import ReadError
from icestream.machine import allocator_variables

Reader = Literal["icestream", "pyiceberg"]


@dataclass(frozen=True, slots=True)
class Sample:
    """A moment of a read.

    Attributes:
        seconds: Since it began.
        grown_bytes: What the process has in memory beyond what it began with.
        held_bytes: What the scan holds of its limit; of PyIceberg, what Arrow has allocated.
        rows: Rows that have come.
    """

    seconds: float
    grown_bytes: int
    held_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """A read of a whole table.

    Attributes:
        reader: Who read.
        rows: Rows that came.
        sum_of_ids: Their `order_id` added up: other readers come to the same.
        seconds: All of it.
        first_batch_seconds: Until the first batch came.
        arrow_peak_bytes: The most that Arrow had allocated.
        grown_peak_bytes: The most that the process had in memory beyond what it began with.
        samples: Moments, in order.
    """

    reader: Reader
    rows: int
    sum_of_ids: int
    seconds: float
    first_batch_seconds: float
    arrow_peak_bytes: int
    grown_peak_bytes: int
    samples: tuple[Sample, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the samples, for `json.dumps`."""
        told = asdict(self)
        del told["samples"]
        return told

    def over_time(self, steps: int, step_seconds: float, of: str = "grown_bytes") -> list[int]:
        """The most in each step of time, until the read has ended.

        Args:
            steps: How many there are at most.
            step_seconds: How long each is.
            of: The attribute of samples.
        """
        most: list[int] = []
        for sample in self.samples:
            step = min(int(sample.seconds / step_seconds), steps - 1)
            value: int = getattr(sample, of)
            last = most[-1] if most else value
            most += [last] * (step - len(most)) + ([value] if step >= len(most) else [])
            most[step] = max(most[step], value)
        return most


def trace_read(
    reader: Reader,
    metadata_file: str,
    *,
    memory: str,
    on_sample: Callable[[Sample], None] = lambda sample: None,
) -> MemoryTrace:
    """Read a table in another process.

    Args:
        reader: Who reads.
        metadata_file: The table's, as `Table.metadata_location` names it.
        memory: The limit, for icestream.
        on_sample: Gets each sample as it comes.

    Raises:
        ReadError: If the process fails.
    """
    script = Path(__file__).with_name("measured_read.py")
    command = [sys.executable, "-P", str(script), reader, metadata_file, memory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as child:
        assert child.stdout is not None
        try:
            samples, facts = _heard(child.stdout, on_sample)
        except BaseException:
            child.kill()
            raise
    if child.returncode or not facts:
        raise ReadError(
            f"the process that reads with {reader} ended with {child.returncode}: its message is "
            "above. If it was killed, there was too little memory: try fewer --rows",
            path=metadata_file,
        )
    return MemoryTrace(reader=reader, samples=tuple(samples), **facts)


def _heard(
    lines: Iterable[str], on_sample: Callable[[Sample], None]
) -> tuple[list[Sample], dict[str, Any]]:
    samples: list[Sample] = []
    facts: dict[str, Any] = {}
    for line in lines:
        told = json.loads(line)
        if "sum_of_ids" in told:
            facts = told
        else:
            samples.append(Sample(**told))
            on_sample(samples[-1])
    return samples, facts


def _environment() -> dict[str, str]:
    """This process's, without what importing icestream has set here for Arrow."""
    ours = allocator_variables()
    return {name: value for name, value in os.environ.items() if ours.get(name) != value}
