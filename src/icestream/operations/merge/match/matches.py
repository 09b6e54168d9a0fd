"""The rows of the table that match the stream's rows, file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.key_hash import KeyHash, Keys, key_values
from icestream.operations.merge.keys.key_index import Sieve

Positions = npt.NDArray[np.int64]
_CHUNK_ROWS = 65_536
_CHUNK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Update:
    """Rows of the stream, with the positions of the rows that they match.

    Attributes:
        positions: Positions in the file, ascending; one row of the stream may match several.
        rows: The rows of the stream, from `Incoming`.
    """

    positions: Positions
    rows: pa.RecordBatch

    def where(self, mask: npt.NDArray[np.bool_]) -> Update:
        """The updates that a mask selects."""
        if mask.all():
            return self
        return Update(self.positions[mask], self.rows.filter(pa.array(mask)))


@dataclass(frozen=True, slots=True)
class KeysOfFile:
    """Keys in a file that the stream may also have.

    Attributes:
        number: The number of the file.
        positions: The positions of the rows.
        keys: The keys.
        values: The same keys as `key_values`; None if keys are not hashed.
    """

    number: int
    positions: Positions
    keys: Keys
    values: pa.Array | None = None


class Updates(Protocol):
    """The updates of a merge, file by file."""

    def files(self) -> list[int]:
        """The numbers of the files with rows to change, ascending."""
        ...

    def positions(self, number: int) -> Positions | None:
        """The positions of the rows to change in a file; None if they are on disk."""
        ...

    def updates(self, number: int) -> Iterator[Update]:
        """The updates for a file. Call this once per file, in the order of `files`."""
        ...

    def keep_only(self, number: int, positions: Positions) -> None:
        """Keep only the updates for some rows of a file, to read them again.

        Only possible if `positions` are known.
        """
        ...


class Matches(Updates, Protocol):
    """The matches of a merge, and the updates that follow from them.

    Attributes:
        duplicates: The number of matching rows of the table that share their key with an earlier
            one.
    """

    duplicates: int

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes in temporary files."""
        ...

    def finish(self) -> None:
        """Insert the remaining rows that match nothing. Call this after all updates."""
        ...

    def close(self) -> None:
        """Drop everything."""
        ...


def keys_of_files(
    live: LiveFiles,
    tasks: Sequence[FileScanTask],
    key: KeyColumns,
    key_hash: KeyHash,
    sieve: Sieve | None,
) -> Iterator[KeysOfFile]:
    """Read the keys of files, without nulls and without the keys that do not pass the sieve."""
    if not tasks:
        return
    arrays = key.in_batches_of(live.selected(key.names))
    for located in live.located(tasks, key.names):
        columns = arrays(located.rows)
        keys = key_hash(columns)
        passes = np.ones(len(keys), np.bool_) if sieve is None else sieve.passes(keys)
        if keys.nulls is not None:
            passes &= ~keys.nulls
        some = np.flatnonzero(passes)
        if len(some):
            values = None
            if keys.second is not None:
                values = key_values([column.take(pa.array(some)) for column in columns])
            yield KeysOfFile(located.number, located.positions[some], keys.where(some), values)


def chunks(rows: pa.RecordBatch, chosen: Positions) -> Iterator[tuple[slice, pa.RecordBatch]]:
    """The chosen rows of a batch in chunks, each with its slice of `chosen`."""
    row_bytes = rows.nbytes / max(1, rows.num_rows)
    step = max(1, min(_CHUNK_ROWS, int(_CHUNK_BYTES / max(1.0, row_bytes))))
    for start in range(0, len(chosen), step):
        part = slice(start, min(len(chosen), start + step))
        yield part, rows.take(pa.array(chosen[part]))
