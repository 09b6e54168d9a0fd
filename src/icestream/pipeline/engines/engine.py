"""The protocol that both engines follow, and the result of a write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from icestream.pipeline.inputs.load_input import LoadInputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.report.write_report import WriteReport


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of a write.

    Attributes:
        write: The report of the write.
        created: Whether the write created the table.
        rows_read: Number of rows read, without bad records; None if unknown.
        may_be_bad: Whether the sources may contain bad records.
        seconds_finishing: Seconds between the last row and the end of the commit; None if unknown.
        peak_worker_bytes: Peak resident size of a Python worker of Spark; None if unknown.
        direct: Whether tasks of Spark read the sources themselves. Rows then pass through the JVM
            only in a merge, once.
        table_files_read: Data files read of tables among the sources.
        table_bytes_read: The size of those files in storage.
    """

    write: WriteReport
    created: bool
    rows_read: int | None
    may_be_bad: bool
    seconds_finishing: float | None = None
    peak_worker_bytes: int | None = None
    direct: bool = False
    table_files_read: int = 0
    table_bytes_read: int = 0


class Engine(Protocol):
    """Runs one load, in this process or on Spark.

    Attributes:
        memory_bytes: The memory limit of the load; on Spark, the limit of each task.
    """

    memory_bytes: int

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Write the rows of all sources as one snapshot."""
        ...

    def quarantine(
        self, inputs: LoadInputs, target: LoadTarget, load_id: str | None
    ) -> WriteReport | None:
        """Store the bad records of all sources. Return None if there are none."""
        ...
