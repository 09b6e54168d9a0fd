"""Reads a table in another process, and records how much memory the process takes."""

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
from icestream.memory.machine import allocator_variables

Reader = Literal["icestream", "pyiceberg"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of a read at one time.

    Attributes:
        seconds: Time since the start.
        grown_bytes: Growth of the process's memory since the start.
        held_bytes: Bytes that the scan holds of its limit. For PyIceberg, bytes allocated by Arrow.
        rows: Rows read so far.
    """

    seconds: float
    grown_bytes: int
    held_bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class MemoryTrace:
    """A read of a whole table.

    Attributes:
        reader: The reader.
        rows: Rows read.
        sum_of_ids: Sum of `order_id`, to check that readers return the same rows.
        seconds: Duration of the read.
        first_batch_seconds: Time until the first batch.
        arrow_peak_bytes: Peak of the bytes allocated by Arrow.
        grown_peak_bytes: Largest growth of the process's memory.
        samples: The samples, in order.
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
        """Return everything except the samples, for `json.dumps`."""
        document = asdict(self)
        del document["samples"]
        return document

    def over_time(self, steps: int, step_seconds: float, of: str = "grown_bytes") -> list[int]:
        """Return the peak in each step of time, until the read ended.

        Args:
            steps: Maximum number of steps.
            step_seconds: Length of a step.
            of: Attribute of the samples.
        """
        peaks: list[int] = []
        for sample in self.samples:
            step = min(int(sample.seconds / step_seconds), steps - 1)
            value: int = getattr(sample, of)
            last = peaks[-1] if peaks else value
            peaks += [last] * (step - len(peaks)) + ([value] if step >= len(peaks) else [])
            peaks[step] = max(peaks[step], value)
        return peaks


def trace_read(
    reader: Reader,
    metadata_file: str,
    *,
    memory: str,
    on_sample: Callable[[Sample], None] = lambda sample: None,
) -> MemoryTrace:
    """Read a table in another process.

    Args:
        reader: The reader to use.
        metadata_file: The table's `Table.metadata_location`.
        memory: The memory limit of icestream.
        on_sample: Called with each sample.

    Raises:
        ReadError: If the process fails.
    """
    script = Path(__file__).with_name("measured_read.py")
    command = [sys.executable, "-P", str(script), reader, metadata_file, memory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as child:
        assert child.stdout is not None
        try:
            samples, facts = _parse(child.stdout, on_sample)
        except BaseException:
            child.kill()
            raise
    if child.returncode or not facts:
        raise ReadError(
            f"the process that reads with {reader} ended with {child.returncode}: see its message "
            "above. If it was killed, there was too little memory: try fewer --rows",
            path=metadata_file,
        )
    return MemoryTrace(reader=reader, samples=tuple(samples), **facts)


def _parse(
    lines: Iterable[str], on_sample: Callable[[Sample], None]
) -> tuple[list[Sample], dict[str, Any]]:
    samples: list[Sample] = []
    facts: dict[str, Any] = {}
    for line in lines:
        fields = json.loads(line)
        if "sum_of_ids" in fields:
            facts = fields
        else:
            samples.append(Sample(**fields))
            on_sample(samples[-1])
    return samples, facts


def _environment() -> dict[str, str]:
    """Return the environment without the variables that icestream set for Arrow's allocator."""
    ours = allocator_variables()
    return {name: value for name, value in os.environ.items() if ours.get(name) != value}
