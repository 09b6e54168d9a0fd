"""Matches of a stream whose rows are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.errors import MemoryBudgetError
from icestream.memory import MemoryBudget, format_bytes
from icestream.upsert.incoming import Bucket
from icestream.upsert.key_index import KeyIndex, Rows
from icestream.upsert.matches import KeysOfFile, Positions, Update, chunks

_MATCH_BYTES = 16


class MatchedInMemory:
    """Finds each key in the index and notes where it is; rows are taken when they are asked for.

    Memory: 16 bytes a match, on lease; the index is let go of once all keys were looked up.

    Args:
        bucket: All rows of the stream.
        changes: Which of them change a row that they match; the others only count as matched.
        keys: The keys of the table's files.
        insert: Gets the rows that match nothing.
        budget: What the matches are on lease from.
    """

    def __init__(
        self,
        bucket: Bucket,
        changes: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]],
        keys: Iterator[KeysOfFile],
        insert: Callable[[pa.RecordBatch], None],
        budget: MemoryBudget,
    ) -> None:
        self.rows = 0
        self._incoming = bucket.rows
        self._budget = budget
        self._lease = budget.force(0)
        self._by_file: dict[int, tuple[Positions, Rows]] = {}
        parts: dict[int, list[tuple[Positions, Rows]]] = {}
        matched = np.zeros(bucket.rows.num_rows, np.bool_)
        changing = changes(bucket.rows)
        for found in keys:
            self._note(found, bucket.index, matched, changing, parts)
        for number in sorted(parts):
            positions, rows = zip(*parts.pop(number), strict=True)
            self._by_file[number] = np.concatenate(positions), np.concatenate(rows)
        self.duplicates = self.rows - int(np.count_nonzero(matched))
        self._insert = insert
        self._new = bucket.kept & ~matched

    @property
    def spilled_bytes(self) -> int:
        """Nothing goes to disk."""
        return 0

    def files(self) -> list[int]:
        """The files with rows to change."""
        return list(self._by_file)

    def positions(self, number: int) -> Positions:
        """Where the rows to change of a file are."""
        return self._by_file[number][0]

    def updates(self, number: int) -> Iterator[Update]:
        """The rows to change of a file."""
        positions, rows = self._by_file[number]
        for part, taken in chunks(self._incoming, rows):
            yield Update(positions[part], taken)

    def keep_only(self, number: int, positions: Positions) -> None:
        """Leave only some rows of a file."""
        known, rows = self._by_file[number]
        self._by_file[number] = positions, rows[np.searchsorted(known, positions)]

    def finish(self) -> None:
        """Insert the rows that match nothing.

        After the others, as files are encoded by what their first rows look like, and new ones may
        look otherwise than those of the table.
        """
        for _, rows in chunks(self._incoming, np.flatnonzero(self._new)):
            self._insert(rows)

    def close(self) -> None:
        """Drop the matches."""
        self._by_file.clear()
        self._lease.release()

    def _note(
        self,
        file: KeysOfFile,
        index: KeyIndex,
        matched: npt.NDArray[np.bool_],
        changing: npt.NDArray[np.bool_],
        parts: dict[int, list[tuple[Positions, Rows]]],
    ) -> None:
        found = index.find(file.keys, file.values)
        self.rows += len(found.rows)
        matched[found.rows] = True
        chosen = changing[found.rows]
        if chosen.any():
            part = (file.positions[found.asked[chosen]], found.rows[chosen])
            parts.setdefault(file.number, []).append(part)
            self._lease.resize(self._lease.held_bytes + _MATCH_BYTES * len(part[0]))
            if self._budget.free_bytes < 0:
                needed = 2 * self._budget.held_bytes
                raise MemoryBudgetError(
                    f"the stream's keys match more than {self.rows} rows of the table, far more "
                    "than it has rows itself: is the key one? If so, raise memory to "
                    f"{format_bytes(needed)} or more",
                    needed_bytes=needed,
                    limit_bytes=self._budget.limit_bytes,
                )
