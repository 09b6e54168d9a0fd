"""What all writers of a write share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icestream.memory.budget import Lease, MemoryBudget
from icestream.write.parquet.data_paths import DataPaths
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.parquet.parquet_writer import ParquetFileWriter
from icestream.write.parquet.rolling_writer import RollingWriter
from icestream.write.parquet.row_buffer import RowBuffer, held_bytes
from icestream.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The table, the encoding of its files, and the memory and threads for writing them.

    Attributes:
        target: The table.
        settings: How files are encoded.
        file_schema: The schema of all batches, with field ids.
        budget: The budget that all memory is charged to.
        pool: The threads that encode; the caller closes it.
        paths: Gives every file its path.
    """

    target: WriteTarget
    settings: ParquetSettings
    file_schema: pa.Schema
    budget: MemoryBudget
    pool: EncodePool
    paths: DataPaths

    def rolling_writer(
        self,
        group_bytes: int,
        *,
        partition_path: str | None = None,
        partition: tuple[Any, ...] = (),
        sorted: bool = False,
        max_tail_bytes: int | None = None,
    ) -> RollingWriter:
        """A writer of files of the target size.

        Args:
            group_bytes: Maximum Arrow bytes of a row group.
            partition_path: The partition's folder; None for an unpartitioned table.
            partition: The partition's values.
            sorted: Whether the rows come in the table's sort order.
            max_tail_bytes: See `RollingWriter`.
        """

        def open_file() -> ParquetFileWriter:
            return ParquetFileWriter(
                self.paths.new(partition_path, partition),
                target=self.target,
                settings=self.settings,
                file_schema=self.file_schema,
                partition=partition,
                sorted=sorted,
            )

        return RollingWriter(
            open_file,
            target_file_bytes=self.settings.target_file_bytes,
            row_group_bytes=group_bytes,
            max_tail_bytes=max_tail_bytes,
        )

    def submit(
        self, writer: RollingWriter, buffer: RowBuffer, lease: Lease, wanted_bytes: int
    ) -> None:
        """Move a row group of about `wanted_bytes` from a buffer, and its lease, to the threads."""
        group = buffer.take(wanted_bytes, self.settings.row_group_rows)
        lease.resize(buffer.bytes)
        self.pool.submit(writer, group, self.budget.force(held_bytes(group)))
