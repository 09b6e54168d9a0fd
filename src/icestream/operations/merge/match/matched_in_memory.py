"""The matches of a stream whose rows are in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from icestream.memory.budget import MemoryBudget, over_limit
from icestream.operations.merge.intake.incoming import Bucket
from icestream.operations.merge.intake.stream_rows import StreamRows
from icestream.operations.merge.keys.key_index import KeyIndex, Rows
from icestream.operations.merge.match.matches import KeysOfFile, Positions, Update, chunks

_MATCH_BYTES = 16


class MatchedInMemory:
    """Looks up each key of the table in the index, and keeps the position of each match.

    Memory: 16 bytes per match, charged to the budget. The index is freed after the last lookup.

    Args:
        bucket: All rows of the stream.
        rows_of: Decides which rows change their matches or are inserted.
        keys: The keys of the table's files.
        budget: The budget that the matches are charged to.
    """

    def __init__(
        self,
        bucket: Bucket,
        rows_of: StreamRows,
        keys: Iterator[KeysOfFile],
        budget: MemoryBudget,
    ) -> None:
        self.rows = 0
        self._incoming = bucket.rows
        self._budget = budget
        self._lease = budget.force(0)
        self._by_file: dict[int, tuple[Positions, Rows]] = {}
        parts: dict[int, list[tuple[Positions, Rows]]] = {}
        matched = np.zeros(bucket.rows.num_rows, np.bool_)
        changing = rows_of.changes(bucket.rows)
        for keys_of_file in keys:
            self._look_up(keys_of_file, bucket.index, matched, changing, parts)
        for number in sorted(parts):
            positions, rows = zip(*parts.pop(number), strict=True)
            self._by_file[number] = np.concatenate(positions), np.concatenate(rows)
        self.duplicates = self.rows - int(np.count_nonzero(matched))
        self._insert = rows_of.insert
        self._new = bucket.kept & ~matched

    @property
    def spilled_bytes(self) -> int:
        """Zero: nothing goes to disk."""
        return 0

    def files(self) -> list[int]:
        """The files with rows to change."""
        return list(self._by_file)

    def positions(self, number: int) -> Positions:
        """The positions of the rows to change in a file."""
        return self._by_file[number][0]

    def updates(self, number: int) -> Iterator[Update]:
        """The updates for a file."""
        positions, rows = self._by_file[number]
        for part, taken in chunks(self._incoming, rows):
            yield Update(positions[part], taken)

    def keep_only(self, number: int, positions: Positions) -> None:
        """Keep only the updates for some rows of a file."""
        known, rows = self._by_file[number]
        self._by_file[number] = positions, rows[np.searchsorted(known, positions)]

    def finish(self) -> None:
        """Insert the rows that match nothing.

        They come last, because the first rows of a file determine its encoding, and new rows may
        look different from those of the table.
        """
        for _, rows in chunks(self._incoming, np.flatnonzero(self._new)):
            self._insert(rows)

    def close(self) -> None:
        """Drop the matches."""
        self._by_file.clear()
        self._lease.release()

    def _look_up(
        self,
        file: KeysOfFile,
        index: KeyIndex,
        matched: npt.NDArray[np.bool_],
        changing: npt.NDArray[np.bool_],
        parts: dict[int, list[tuple[Positions, Rows]]],
    ) -> None:
        matches = index.find(file.keys, file.values)
        self.rows += len(matches.rows)
        matched[matches.rows] = True
        chosen = changing[matches.rows]
        if chosen.any():
            part = (file.positions[matches.places[chosen]], matches.rows[chosen])
            parts.setdefault(file.number, []).append(part)
            self._lease.resize(self._lease.held_bytes + _MATCH_BYTES * len(part[0]))
            if self._budget.free_bytes < 0:
                needed = 2 * self._budget.held_bytes
                raise over_limit(
                    f"the stream's keys match more than {self.rows} rows of the table",
                    needed_bytes=needed,
                    limit_bytes=self._budget.limit_bytes,
                    otherwise="check that the key columns identify a row",
                )
