"""Writes rows in the table's sort order, partition by partition."""

from __future__ import annotations

import pyarrow as pa

from icestream.errors import InvalidArgumentError
from icestream.memory import MemoryBudget
from icestream.write.encode_pool import EncodePool
from icestream.write.new_file import NewFile
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.partition import Partitioner
from icestream.write.partitioned_writer import PartitionedWriter
from icestream.write.sort_keys import SortKeys
from icestream.write.target import WriteTarget


class SortedWriter:
    """Sorts all rows of each partition, also when they do not fit in memory.

    A load that fits in the buffer is sorted there. Of a larger one, each buffer full is sorted and
    spilled to disk, and merged at the end; only partitions that are complete are written before. A
    partition's files follow one another in the order, and each says so by its `sort_order_id`. Of
    an unpartitioned table, all rows are one partition.

    Memory: the limit of `budget`: a third of it for the buffer, two thirds for row groups; while
    runs are merged, the buffer's third is theirs.

    Args:
        target: A table that has a sort order.
        settings: How files are encoded.
        file_schema: The schema of all batches.
        partitioner: Numbers the partitions.
        budget: What all of it is on lease from.
        pool: Encodes row groups.
        spill_directory: Where runs go; None is `tempfile`'s choice (`TMPDIR`).

    Raises:
        InvalidArgumentError: If the table has no sort order.
        MemoryBudgetError: If the limit is too small for row groups worth the name.
        UnsupportedFeatureError: If the sort order uses a column inside a list or map.
    """

    def __init__(
        self,
        target: WriteTarget,
        *,
        settings: ParquetSettings,
        file_schema: pa.Schema,
        partitioner: Partitioner,
        budget: MemoryBudget,
        pool: EncodePool,
        spill_directory: str | None = None,
    ) -> None:
        if not target.sort_order.fields:
            raise InvalidArgumentError(f"{target.table} has no sort order to write by")
        self._partitions = PartitionedWriter(
            target,
            settings=settings,
            file_schema=file_schema,
            partitioner=partitioner,
            budget=budget,
            pool=pool,
            keys=SortKeys(target.sort_order, target.schema, file_schema),
            spill_directory=spill_directory,
        )

    @property
    def spilled_bytes(self) -> int:
        """Bytes written to temporary files so far."""
        return self._partitions.spilled_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, in any order; raises as `PartitionedWriter.write` does."""
        self._partitions.write(batch)

    def close(self) -> list[NewFile]:
        """Write what is left and describe all files; raises as `PartitionedWriter.close` does."""
        return self._partitions.close()

    def abort(self) -> None:
        """Delete every file; nothing happens after a successful `close`."""
        self._partitions.abort()
