"""Lines of text files that can't be read, and the schema of the quarantine table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from icestream.errors import SourceError

_SHOWN = 200

QUARANTINE_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("line", pa.int64()),
        ("record", pa.string()),
        ("reason", pa.string()),
        ("load_id", pa.string()),
        ("load", pa.string()),
        ("quarantined_at", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A line that can't be read.

    Attributes:
        source: The file.
        line: The line's number, from 1.
        record: The line's text; bytes that are not valid UTF-8 are replaced.
        reason: Why it can't be read.
    """

    source: str
    line: int
    record: str
    reason: str

    def error(self, advice: str) -> SourceError:
        """An error that names the file and the line, with a sentence that says what to do."""
        shown = self.record if len(self.record) <= _SHOWN else f"{self.record[:_SHOWN]}..."
        return SourceError(
            f"{self.source!r}, line {self.line}, can't be read: {self.reason}. It is {shown!r}. "
            f"{advice}"
        )


OnBad = Callable[[BadRecord], None]


def refuse(bad: BadRecord) -> None:
    """Raise an error that names the file and the line."""
    raise bad.error(
        "Fix it, give schema= other types, or load with bad_records='quarantine' to set such lines "
        "aside"
    )
