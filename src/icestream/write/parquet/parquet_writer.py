"""One Parquet data file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.catalogs.credentials import create_output, expired_error, is_expired
from icestream.errors import IcestreamError, WriteError, WriterClosedError
from icestream.read.decode.footer import SealedOutput
from icestream.write.new_file import NewFile
from icestream.write.parquet.file_metrics import file_metrics
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.target import WriteTarget, delete_file

_BUFFER_BYTES = 1 << 20
_MOST_PENDING_BYTES = 8 << 20


class ParquetFileWriter:
    """Writes row groups to one file of the table, which is created with the first row group.

    Memory: one column's encoded pages while a row group is written. Between row groups, the footer
    so far, some hundred bytes for each column of each row group; on an object store also up to 8 MB
    that are not uploaded yet, and the part that is being filled.

    Args:
        path: The path of the file, which must not exist.
        target: The table.
        settings: The encoding of the file.
        file_schema: The schema of all batches, with field ids.
        partition: The values of the file's partition; empty for an unpartitioned table.
        sorted: Whether the rows come in the table's sort order.

    Attributes:
        path: The path of the file.
        rows: Rows written so far.
        body_bytes: Bytes of the row groups in storage so far.
        footer_bytes: Approximate bytes that closing the file adds.
        tail_bytes: Approximate bytes that stay in memory until the file is closed.
    """

    def __init__(
        self,
        path: str,
        *,
        target: WriteTarget,
        settings: ParquetSettings,
        file_schema: pa.Schema,
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
        """Delete the file; does nothing after a successful `close`."""
        self._ended = True
        if not self._closed:
            self.delete()

    def delete(self) -> None:
        """Delete the file, closed or not. Failures are only logged."""
        self._ended = True
        self._let_go()
        if self._created:
            self._created = False
            delete_file(self._target.io, self.path)

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
        """Wait until storage has the row groups so far, except for a few megabytes.

        Object stores upload in the background, however far behind they are. Without the wait, the
        whole file may pile up in memory.
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
        return NewFile(
            path=self.path,
            table_uuid=str(self._target.metadata.table_uuid),
            write_id=self._target.write_id,
            schema_id=self._schema_id(),
            spec_id=self._target.spec.spec_id,
            partition=self._partition,
            rows=self.rows,
            bytes=size,
            sort_order_id=self._target.sort_order.order_id if self._sorted else None,
            metrics=file_metrics(metadata, self._settings),
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
