"""A sorted run of rows in an anonymous temporary file."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from icestream.errors import WriteError
from icestream.memory.budget import MemoryBudget

_WRITE_BUFFER_BYTES = 256 * 1024
_WRITE_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
# All threads are busy encoding while runs are read, so parallel decompression would only wait.
_READ_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)
_ID_FIELD = pa.field("partition id", pa.int32(), nullable=False)


def with_ids(rows: pa.RecordBatch, ids: Any) -> pa.RecordBatch:
    """Append the partition ids (a NumPy array) to the rows as the last column."""
    arrays = [*rows.columns, pa.array(ids, pa.int32())]
    return pa.RecordBatch.from_arrays(arrays, schema=with_id_field(rows.schema))


def with_id_field(schema: pa.Schema) -> pa.Schema:
    """Append the column of partition ids to a schema."""
    return schema.append(_ID_FIELD)


class RunFile:
    """Rows in order of partition id, as chunks of lz4-compressed Arrow IPC.

    The file never has a name where the system allows it (Linux); elsewhere it is unlinked as soon
    as it is open. It disappears with the process, however the process ends.

    Memory: a write buffer of 256 kB until `finish`; nothing afterwards.

    Args:
        schema: The schema of the rows, without ids.
        directory: The directory of the file.
    """

    def __init__(self, schema: pa.Schema, directory: str) -> None:
        self.bytes = 0
        self._schema = schema
        self._directory = directory
        try:
            self._file: Any = tempfile.TemporaryFile(  # noqa: SIM115
                dir=directory, buffering=_WRITE_BUFFER_BYTES
            )
        except OSError as error:
            raise _spill_error(directory, error) from error
        self._stream: Any = None

    def append(self, rows: pa.RecordBatch, ids: Any) -> None:
        """Write one chunk. A cursor holds one chunk in memory at a time."""
        try:
            if self._stream is None:
                sink = pa.PythonFile(self._file, mode="w")
                self._stream = pa.ipc.new_stream(
                    sink, with_id_field(self._schema), options=_WRITE_OPTIONS
                )
            self._stream.write_batch(with_ids(rows, ids))
        except OSError as error:
            raise _spill_error(self._directory, error) from error

    def finish(self) -> None:
        """Finish writing. The run can then be read."""
        try:
            if self._stream is not None:
                self._stream.close()
            self._file = self._file.detach()  # Reads need no buffer: each chunk is one read.
        except OSError as error:
            raise _spill_error(self._directory, error) from error
        self.bytes = self._file.tell()

    def cursor(self, budget: MemoryBudget) -> RunCursor:
        """Start reading from the first row. A run can be read only once."""
        self._file.seek(0)
        return RunCursor(self, pa.PythonFile(self._file, mode="r"), self._schema, budget)

    def read_error(self, error: OSError) -> WriteError:
        """The error for a run that can't be read back."""
        return _spill_error(self._directory, error)

    def close(self) -> None:
        """Drop the rows and their disk space. A second call does nothing."""
        self._stream = None
        with suppress(OSError):  # The rows are dropped anyway, so a failed flush is harmless.
            self._file.close()


class RunCursor:
    """A position in a run: the current chunk and a row in it.

    Memory: one chunk, on lease.

    Attributes:
        rows: The chunk.
        ids: The partition id of each of its rows, in ascending order.
        position: The next row in the chunk.
        exhausted: Whether the run has no more rows.
    """

    rows: Any
    ids: Any

    def __init__(
        self, run: RunFile, source: pa.NativeFile, schema: pa.Schema, budget: MemoryBudget
    ) -> None:
        self.exhausted = False
        self.position = 0
        self._run = run
        self._schema = schema
        self._lease = budget.force(0)
        self._reader: Any = pa.ipc.open_stream(source, options=_READ_OPTIONS) if run.bytes else None
        self._load()

    @property
    def id(self) -> int:
        """The partition id of the next row."""
        return int(self.ids[self.position])

    def end_of(self, partition_id: int) -> int:
        """Where a partition's rows end in this chunk. The next chunk may have more of them."""
        # For an integer of another width, NumPy would convert the whole chunk first.
        return int(self.ids.searchsorted(np.int32(partition_id), side="right"))

    def advance(self, position: int) -> None:
        """Move to a row of this chunk; past its last row, move to the next chunk."""
        self.position = position
        if position == len(self.ids):
            self._load()

    def close(self) -> None:
        """Release the chunk and close the file."""
        self.exhausted = True
        self.rows = self.ids = None
        self._reader = None
        self._lease.release()
        self._run.close()

    def _load(self) -> None:
        """Read the next chunk."""
        self.rows = self.ids = None  # Free this chunk before the next is decoded.
        try:
            chunk = self._reader.read_next_batch() if self._reader is not None else None
        except StopIteration:
            chunk = None
        except OSError as error:
            raise self._run.read_error(error) from error
        if chunk is None:
            self.close()
            return
        self._lease.resize(chunk.get_total_buffer_size())
        *columns, ids = chunk.columns
        self.rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self.ids = ids.to_numpy()
        self.position = 0


def _spill_error(directory: str, error: OSError) -> WriteError:
    return WriteError(
        f"rows could not be spilled to {directory}: {error.strerror or error}: free some space, "
        "name another directory in TMPDIR, or raise `memory`",
        path=directory,
    )
