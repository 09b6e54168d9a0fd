"""Which rows of the table the stream's rows match, file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.commit.live_files import LiveFiles
from icestream.upsert.key_columns import KeyColumns
from icestream.upsert.key_hash import KeyHash, Keys, key_values
from icestream.upsert.key_index import Sieve

Positions = npt.NDArray[np.int64]
_CHUNK_ROWS = 65_536
_CHUNK_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Update:
    """Rows of the stream, and where the rows are that they match.

    Attributes:
        positions: In the file, ascending; a row of the stream may match several.
        rows: The rows of the stream, as `Incoming` gives them.
    """

    positions: Positions
    rows: pa.RecordBatch

    def where(self, mask: npt.NDArray[np.bool_]) -> Update:
        """Some of them."""
        if mask.all():
            return self
        return Update(self.positions[mask], self.rows.filter(pa.array(mask)))


@dataclass(frozen=True, slots=True)
class KeysOfFile:
    """Keys in a file that the stream may have, too.

    Attributes:
        number: Which file.
        positions: Where their rows are.
        keys: The keys.
        values: The same as `key_values`; None where keys are not hashed.
    """

    number: int
    positions: Positions
    keys: Keys
    values: pa.Array | None = None


class Matches(Protocol):
    """What there is to do.

    Attributes:
        rows: Rows of the table that match.
        duplicates: Those of them whose key an earlier one has, too.
    """

    rows: int
    duplicates: int

    @property
    def spilled_bytes(self) -> int:
        """What went through temporary files."""
        ...

    def files(self) -> list[int]:
        """The files with rows to change, by their number, ascending."""
        ...

    def positions(self, number: int) -> Positions | None:
        """Where the rows to change of a file are, if that is known without asking for them."""
        ...

    def updates(self, number: int) -> Iterator[Update]:
        """The rows to change of a file; ask for the files in their order, each once."""
        ...

    def keep_only(self, number: int, positions: Positions) -> None:
        """Leave only some rows of a file, to be asked for once more; positions must be known."""
        ...

    def finish(self) -> None:
        """Insert what is left of the rows that match nothing; call it when all is changed."""
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
    """Read the key columns of files, and leave out keys that the stream does not have, mostly.

    Without a sieve all keys come but nulls.
    """
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
    """Some rows of a batch, a chunk at a time, and which of those chosen these are."""
    row_bytes = rows.nbytes / max(1, rows.num_rows)
    step = max(1, min(_CHUNK_ROWS, int(_CHUNK_BYTES / max(1.0, row_bytes))))
    for start in range(0, len(chosen), step):
        part = slice(start, min(len(chosen), start + step))
        yield part, rows.take(pa.array(chosen[part]))
