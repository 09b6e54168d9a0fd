"""Converts bad records to rows of the quarantine table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from icestream.pipeline.inputs.load_input import LoadInputs
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.write.sources.bad_record import QUARANTINE_SCHEMA, BadRecord
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.file_store import shown_path
from icestream.write.sources.source_file import SourceFile
from icestream.write.sources.text.text_lines import BLOCK_BYTES

_BATCH = 1000


@dataclass(frozen=True, slots=True)
class QuarantineRows:
    """Converts bad records to rows. This is plain data that Spark can send to executors.

    Attributes:
        load: The load's name.
        load_id: The load's id, if it has one.
        at: When the load ran.
    """

    load: str
    load_id: str | None
    at: datetime

    @classmethod
    def of(cls, spec: LoadSpec) -> QuarantineRows:
        """The converter for a load that starts now."""
        return cls(spec.name, spec.load_id, datetime.now(UTC))

    def of_files(self, rows: FileRows, files: Iterable[SourceFile]) -> Iterator[pa.RecordBatch]:
        """The bad records of files.

        Memory: a block of text, and its bad records.
        """
        waiting: list[BadRecord] = []
        for _ in rows.read(files, waiting.append):  # once per block
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
    """Read the text files of a load again, only for their bad records.

    The load itself does not collect them: a kill after its commit would lose them.

    Memory: a block of text, and its bad records.
    """
    for each in inputs.inputs:
        if each.has_text:
            assert each.files is not None
            yield from rows.of_files(each.rows, each.files.files)


def quarantine_load_id(load_id: str | None) -> str | None:
    """The load id of a load's bad records, so that they are stored only once."""
    return None if load_id is None else f"{load_id}:quarantine"
