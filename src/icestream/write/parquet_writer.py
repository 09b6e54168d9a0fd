"""One Parquet data file."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import data_file_statistics_from_parquet_metadata

from icestream.credentials import create_output, expired_error, is_expired, renewing
from icestream.errors import IcestreamError, WriteError, WriterClosedError
from icestream.footer_seal import SealedOutput
from icestream.write.new_file import NewFile
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.target import WriteTarget

_BUFFER_BYTES = 1 << 20
_MOST_PENDING_BYTES = 8 << 20

_log = logging.getLogger(__name__)


class ParquetFileWriter:
    """Writes row groups to one file of the table; the file is made with the first of them.

    Memory: one column's encoded pages while a row group is written; between row groups the footer
    so far, some hundred bytes for each column of each row group, and on an object store what is
    not uploaded yet: 8 MB, and the part that is filling.

    Args:
        path: Where the file goes; nothing may be there.
        target: The table.
        settings: How the file is encoded.
        file_schema: The schema of all batches, with field ids.
        spec_id: The partition spec that `partition` belongs to.
        partition: The values of the file's partition; empty for an unpartitioned table.
        sorted: Whether the rows come in the table's sort order.

    Attributes:
        path: Where the file is.
        rows: Rows written so far.
        body_bytes: What the row groups take in storage so far.
        footer_bytes: What closing the file would add to that, about.
        tail_bytes: What is kept in memory until the file is closed, about.
    """

    def __init__(
        self,
        path: str,
        *,
        target: WriteTarget,
        settings: ParquetSettings,
        file_schema: pa.Schema,
        spec_id: int,
        partition: tuple[Any, ...] = (),
        sorted: bool = False,
    ) -> None:
        self.path = path
        self.rows = 0
        self.body_bytes = 0
        self.footer_bytes = 0
        self.tail_bytes = 0
        self._target = target
        self._settings = settings
        self._file_schema = file_schema
        self._spec_id = spec_id
        self._partition = partition
        self._sorted = sorted
        self._store: Any = None
        self._output: Any = None
        self._stream: Any = None
        self._writer: Any = None
        self._stored_bytes = 0
        self._most_footer_bytes = 1 << 20
        self._group_rows = 0
        self._created = False
        self._ended = False
        self._closed = False

    def write_row_group(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write the batches as one row group.

        Raises:
            WriteError: If storage refuses; the caller then aborts.
        """
        self._assert_open()
        rows = sum(batch.num_rows for batch in batches)
        if not rows:
            return
        table = pa.Table.from_batches(batches, schema=self._file_schema)
        with self._write_errors():
            if self._writer is None:
                self._open(table)
            self._writer.write_table(table, row_group_size=rows)
            self.body_bytes = self._stream.tell()
            self._catch_up()
            self.footer_bytes += self._settings.footer_bytes(group_rows=self._group_rows)
            self.tail_bytes += self._settings.tail_bytes(group_rows=self._group_rows)
            self._most_footer_bytes += 4 * self._settings.tail_bytes(group_rows=1)
        self.rows += rows

    @property
    def bytes_written(self) -> int:
        """What the file would take if it were closed now, about."""
        return self.body_bytes + self.footer_bytes

    def close(self) -> NewFile:
        """Finish the file.

        Raises:
            WriteError: If storage refuses, or nothing was written. The file has been deleted.
        """
        self._assert_open()
        self._ended = True
        try:
            with self._write_errors():
                new_file = self._finish()
        except BaseException:
            self.delete()
            raise
        self._closed = True
        return new_file

    def abort(self) -> None:
        """Give the file up and delete it; nothing happens after a successful `close`."""
        self._ended = True
        if not self._closed:
            self.delete()

    def delete(self) -> None:
        """Delete the file, closed or not. Failures are only logged: it may be gone already."""
        self._ended = True
        self._let_go()
        if self._created:
            self._created = False
            try:
                io = self._target.io
                renewing(io, lambda: io.delete(self.path), path=self.path)
            except Exception as error:
                _log.debug("could not delete %s: %s", self.path, error)

    def _open(self, first_group: pa.Table) -> None:
        self._store = create_output(self._target.io, self.path)
        self._created = True
        self._output = SealedOutput(self._store, _BUFFER_BYTES)
        self._stream = self._output.stream
        self._group_rows = first_group.num_rows
        self._writer = pq.ParquetWriter(
            self._stream, self._file_schema, **self._settings.writer_options(first_group)
        )

    def _catch_up(self) -> None:
        """Wait until storage has the row groups so far, a few megabytes aside.

        Object stores upload in the background, however far behind they are: without this the
        whole file may gather in memory.
        """
        if self.body_bytes - self._stored_bytes > _MOST_PENDING_BYTES:
            self._stream.flush()
            self._store.flush()
            self._stored_bytes = self.body_bytes

    def _finish(self) -> NewFile:
        if self._writer is None:
            raise WriteError(f"no rows were written to {self.path}", path=self.path)
        with self._output.footer(self._most_footer_bytes):
            self._writer.close()
        metadata = self._writer.writer.metadata
        self._output.close()
        size = self._output.bytes_written
        self._writer = self._stream = None
        settings = self._settings
        metrics = data_file_statistics_from_parquet_metadata(
            metadata, settings.statistics_plan, settings.column_ids
        ).to_serialized_dict()
        del metrics["record_count"]
        return NewFile(
            path=self.path,
            table_uuid=str(self._target.metadata.table_uuid),
            write_id=self._target.write_id,
            schema_id=self._schema_id(),
            spec_id=self._spec_id,
            partition=self._partition,
            rows=self.rows,
            bytes=size,
            sort_order_id=self._target.sort_order.order_id if self._sorted else None,
            metrics=metrics,
        )

    def _schema_id(self) -> int | None:
        schema = self._target.schema
        known = any(
            schema.schema_id == other.schema_id and schema == other
            for other in self._target.metadata.schemas
        )
        return schema.schema_id if known else None

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.is_open = False  # Or its finaliser would write to the closed stream.
            self._writer = None
        if self._stream is not None:
            with suppress(Exception):
                self._stream.close()
            self._stream = None

    def _assert_open(self) -> None:
        if self._ended:
            raise WriterClosedError(f"the writer of {self.path} has ended")

    @contextmanager
    def _write_errors(self) -> Iterator[None]:
        """Name the file in whatever its file system raises: each has exceptions of its own."""
        try:
            yield
        except (IcestreamError, MemoryError):
            raise
        except Exception as error:
            if is_expired(error, self._target.io):
                why = "the file was not complete"
                raise expired_error(self.path, why) from error
            raise WriteError(
                f"{self.path} could not be written: {error}", path=self.path
            ) from error
