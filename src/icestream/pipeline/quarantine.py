"""Bad records on their way to the quarantine table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from icestream.pipeline.bad_record import QUARANTINE_SCHEMA, BadRecord
from icestream.pipeline.file_rows import FileRows
from icestream.pipeline.file_store import shown_path
from icestream.pipeline.load_input import LoadInputs
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.source_file import SourceFile
from icestream.pipeline.text_lines import BLOCK_BYTES

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

    def of_files(self, rows: FileRows, files: Iterable[SourceFile]) -> Iterator[pa.RecordBatch]:
        """The bad records of files, and none of the others.

        Memory: a block of text, and the bad records of it.
        """
        waiting: list[BadRecord] = []
        for _ in rows.read(files, waiting.append):  # has a turn after every block
            if len(waiting) >= _BATCH or sum(len(each.record) for each in waiting) >= BLOCK_BYTES:
                yield self._batch(waiting)
                waiting.clear()
        if waiting:
            yield self._batch(waiting)

    def _batch(self, bad: Sequence[BadRecord]) -> pa.RecordBatch:
        count = len(bad)
        return pa.RecordBatch.from_arrays(
            [
                pa.array([shown_path(each.source) for each in bad], pa.string()),
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
        if each.has_text:
            assert each.files is not None
            yield from rows.of_files(each.rows, each.files.files)


def quarantine_load_id(load_id: str | None) -> str | None:
    """The id under which the bad records of a load are stored, so that they are stored once."""
    return None if load_id is None else f"{load_id}:quarantine"
