"""One unit as a stream of finished batches.

decode -> join tiny pieces -> project -> drop deleted rows -> filter -> drop columns that only the
filter needed -> add metadata columns -> mask and transform -> join small remainders
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from icestream.memory.budget import format_bytes, over_limit
from icestream.read.decode.prefetch import Reader
from icestream.read.decode.spread import cut_out, dictionary_columns, rows_that_fit
from icestream.read.deletes.position_set import PositionSet
from icestream.read.deliver.units import Unit
from icestream.read.project.origin import Origin
from icestream.read.project.projection import Unprojectable
from icestream.read.project.reshape import Reshaper

_PIECE_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    Attributes:
        rows: Number of decoded rows.
        decoded_bytes: Arrow bytes of these rows, in the table's types.
        batches: Batches that are ready for delivery. May be empty.
        waiting_bytes: Bytes that are held back to be joined with later rows.
    """

    rows: int
    decoded_bytes: int
    batches: list[pa.RecordBatch]
    waiting_bytes: int


class UnitStream:
    """Decodes a unit step by step, and continues after transient errors."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._file = unit.file
        self._split = unit.file.split
        self._environment = unit.file.environment
        self._position = unit.first_row
        self._reader: Reader | None = None
        self._reopened = False
        self._carry: deque[pa.RecordBatch] = deque()
        self._dictionaries: list[int] | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._batch_rows = self._environment.sizing.batch_rows
        mask, self._select = self._environment.row_filter(self._split.context)
        self._mask = mask if self._split.filtered else None
        has_origin = bool(self._split.context.metadata_columns)
        self._origin = Origin(self._split) if has_origin else None
        self._reshaper = self._environment.reshaper

    def step(self, rows: int, use_threads: bool, most_bytes: int) -> Step | None:
        """Decode and process up to `rows` rows; None at the end of the unit.

        Args:
            rows: Maximum number of rows.
            use_threads: Whether to decode columns in parallel.
            most_bytes: Maximum size of expanded dictionaries. Further rows wait for the next step.

        Raises:
            ReadError: With the path and the split, after all retries failed.
        """
        raw = self._decode_retrying(rows, use_threads)
        if raw is None:
            return None
        if self._dictionaries is None:
            self._dictionaries = dictionary_columns(raw.schema)
        fitting = rows_that_fit(raw, self._dictionaries, most_bytes)
        if fitting < raw.num_rows:
            self._carry.appendleft(raw.slice(fitting))
            raw = cut_out(raw, fitting)
        count = raw.num_rows
        try:
            batch, decoded_bytes = self._finish(raw)
        except (pa.ArrowException, ValueError) as error:
            if self._reshaper is not None and self._reshaper.hides_values:
                hidden = Unprojectable("a value can't be converted; a mask hides which")
                raise self._file.unprojectable(hidden) from None
            raise self._file.unprojectable(Unprojectable(str(error))) from error
        if self._reshaper is None:
            ready = self._collect(batch, whole=batch.num_rows == count)
        else:
            results = self._reshaped(self._reshaper, batch)
            decoded_bytes = max(decoded_bytes, sum(b.get_total_buffer_size() for b in results))
            ready = [b for r in results for b in self._collect(r, whole=r.num_rows >= count)]
        waiting = sum(b.get_total_buffer_size() for b in self._waiting)
        return Step(count, decoded_bytes, ready, waiting)

    def _reshaped(self, reshaper: Reshaper, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """What masks and transform make of a batch, in batches of the size that was requested."""
        if not batch.num_rows:
            return []
        result = reshaper(batch)
        size = result.get_total_buffer_size()
        limit_bytes = self._environment.share.limit_bytes
        if size > limit_bytes:
            raise over_limit(
                f"the transform makes {format_bytes(size)} of {batch.num_rows} rows of "
                f"{self._split.context.table}",
                needed_bytes=2 * size,
                limit_bytes=limit_bytes,
                otherwise="return less",
            )
        most = self._batch_rows
        if result.num_rows <= most:
            return [result]
        starts = range(0, result.num_rows, most)
        return [cut_out(result.slice(start), most) for start in starts]

    def flush(self) -> list[pa.RecordBatch]:
        """The rows that were held back, as one batch; none if there are no such rows."""
        if not self._waiting:
            return []
        joined = pa.concat_batches(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        self._waiting = []
        self._waiting_rows = 0
        return [joined]

    def close(self) -> None:
        """Close the decoder, and release the file."""
        self._waiting.clear()
        self._drop_reader()

    def _decode_retrying(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        def decode() -> pa.RecordBatch | None:
            try:
                return self._decode(rows, use_threads)
            except BaseException:
                self._drop_reader()
                self._reopened = True
                raise

        return self._file.retrying(decode)

    def _decode(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        if self._reader is None:
            self._open(rows)
        pieces: list[pa.RecordBatch] = []
        count = 0
        while count < rows:
            piece = self._carried(rows) or self._next_piece(rows, use_threads)
            if piece is None:
                break
            if pieces and count + piece.num_rows > rows:
                self._carry.appendleft(piece)
                break
            pieces.append(piece)
            count += piece.num_rows
            if count >= min(rows // 2, _PIECE_ROWS):
                break
        if not pieces:
            seen = self._position - self._unit.first_row
            if self._reopened and seen < self._unit.rows:
                raise OSError("the file is shorter than it was when it was first read")
            return None
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _carried(self, rows: int) -> pa.RecordBatch | None:
        """Rows that were decoded before. At most `rows` of them if they have dictionaries."""
        if not self._carry:
            return None
        piece = self._carry.popleft()
        if piece.num_rows > rows and self._dictionaries:
            self._carry.appendleft(piece.slice(rows))
            return cut_out(piece, rows)
        return piece

    def _next_piece(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        assert self._reader is not None
        piece = self._reader.step(rows, use_threads)
        while piece is not None and piece.num_rows == 0:
            piece = self._reader.step(rows, use_threads)
        return piece

    def _open(self, rows: int) -> None:
        handle = self._file.shared.acquire()
        try:
            self._reader = self._unit.layout.make_reader(handle, rows)
        except BaseException:
            self._file.shared.release()
            raise
        behind = self._position - self._unit.first_row
        while behind > 0:  # After a retry, skip the rows that were delivered before.
            piece = self._reader.step(min(rows, behind), False)
            if piece is None:
                raise OSError("the file is shorter than it was when it was first read")
            behind -= piece.num_rows
            if behind < 0:
                self._carry.append(piece.slice(piece.num_rows + behind))

    def _drop_reader(self) -> None:
        self._carry.clear()
        if self._reader is not None:
            self._reader.close()
            self._reader = None
            self._file.shared.release()

    def _finish(self, raw: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The rows to deliver of a step, and the Arrow bytes of all its rows."""
        first, count = self._position, raw.num_rows
        self._position += count
        wanted = self._wanted(first, count)
        raw_bytes = raw.get_total_buffer_size()
        if wanted is not None:  # Before the other rows are processed.
            raw = raw.take(wanted)
        batch = self._file.projection(raw.schema)(raw)
        del raw
        origin = self._origin
        positions = None if origin is None else origin.positions(first, count, wanted)
        # The size of the next step is predicted from all rows.
        decoded_bytes = batch.get_total_buffer_size() if wanted is None else raw_bytes
        if origin is not None:
            decoded_bytes += origin.row_bytes * count
        deleted = self._file.deleted()
        if deleted is not None:
            keep = deleted.keep_mask(first, count)
            if keep is not None:
                mask = keep if wanted is None else keep.take(wanted)
                batch, positions = _filtered(batch, positions, mask)
        if self._mask is not None and batch.num_rows:
            batch, positions = _filtered(batch, positions, self._mask(batch))
        if self._select is not None:
            batch = self._select(batch)
        if origin is not None:
            batch = origin.append(batch, positions)
        return batch, decoded_bytes

    def _wanted(self, first: int, count: int) -> pa.Array | None:
        """The indices of a step's rows to read; None for all."""
        positions = self._split.positions
        if positions is None:
            return None
        if isinstance(positions, PositionSet):
            return pa.array(positions.between(first, first + count) - first)
        start, stop = np.searchsorted(positions, (first, first + count))
        return pa.array(positions[start:stop] - first)

    def _collect(self, batch: pa.RecordBatch, *, whole: bool) -> list[pa.RecordBatch]:
        """Return a batch, or hold a small one back to join it with the next."""
        if batch.num_rows == 0:
            return []
        ready: list[pa.RecordBatch] = []
        if self._waiting_rows + batch.num_rows > self._batch_rows:
            ready = self.flush()
        if whole and not self._waiting:
            ready.append(batch)
            return ready
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        target = self._environment.sizing.step_bytes // 2
        if (
            self._waiting_rows * 2 >= self._batch_rows
            or sum(b.get_total_buffer_size() for b in self._waiting) >= target
        ):
            ready.extend(self.flush())
        return ready


def _filtered(
    batch: pa.RecordBatch, positions: pa.Array | None, mask: pa.Array
) -> tuple[pa.RecordBatch, pa.Array | None]:
    return batch.filter(mask), None if positions is None else positions.filter(mask)
