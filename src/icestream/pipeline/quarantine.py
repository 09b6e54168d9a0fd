"""Bad records on their way to the quarantine table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from icestream.pipeline.bad_record import QUARANTINE_SCHEMA, BadRecord
from icestream.pipeline.load_input import LoadInputs
from icestream.pipeline.load_spec import LoadSpec

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class QuarantineRows:
    """Makes rows of bad records: plain data, which may travel to executors.

    Attributes:
        load: The load's name.
        load_id: Its id, if it has one.
        at: When it ran.
    """

    load: str
    load_id: str | None
    at: datetime

    @classmethod
    def of(cls, spec: LoadSpec) -> QuarantineRows:
        """For a load that runs now."""
        return cls(spec.name, spec.load_id, datetime.now(UTC))

    def batch(self, bad: Sequence[BadRecord]) -> pa.RecordBatch:
        """Rows of the quarantine table."""
        count = len(bad)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([each.source for each in bad], pa.string()),
                pa.array([each.line for each in bad], pa.int64()),
                pa.array([each.record for each in bad], pa.string()),
                pa.array([each.reason for each in bad], pa.string()),
                pa.array([self.load_id] * count, pa.string()),
                pa.array([self.load] * count, pa.string()),
                pa.array([self.at] * count, pa.timestamp("us", "UTC")),
            ],
            schema=QUARANTINE_SCHEMA,
        )


def bad_rows(inputs: LoadInputs, rows: QuarantineRows) -> Iterator[pa.RecordBatch]:
    """Read the text files of a load once more, for their bad records alone.

    They are not kept while the load runs: it may be a second run of a load that had committed and
    died before its bad records were stored.

    Memory: a block of text, and some bad records.
    """
    for each in inputs.inputs:
        if not each.has_text:
            continue
        assert each.files is not None
        waiting: list[BadRecord] = []
        for _ in each.rows.read(each.files.files, waiting.append):
            if len(waiting) >= _BATCH:
                yield rows.batch(waiting)
                waiting.clear()
        if waiting:
            yield rows.batch(waiting)


def quarantine_load_id(load_id: str | None) -> str | None:
    """The id under which the bad records of a load are stored, so that they are stored once."""
    return None if load_id is None else f"{load_id}:quarantine"
