"""Ray Data's side of `icestream.ray`: a datasource over splits, and a datasink for a table."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow as pa

from icestream.errors import MissingExtraError
from icestream.operations.write_files import write_files
from icestream.read.order import Order
from icestream.read.scan import read_splits
from icestream.read.split import Split
from icestream.spark.tasks.packing import pack
from icestream.write.new_file import NewFile
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.target import WriteTarget

try:
    from ray.data import Datasource, ReadTask, read_datasource
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasink, WriteResult
except ImportError as error:
    raise MissingExtraError("Ray Data is not installed: pip install 'icestream[ray]'") from error

__all__ = ["IcestreamDatasink", "IcestreamDatasource", "TaskRead", "read_datasource"]

_DECODED_FACTOR = 5  # Arrow bytes for each byte of a file, as Ray assumes for Parquet.
_BUNDLE_BYTES = 128 << 20  # As large as Ray's own blocks.


@dataclass(frozen=True, slots=True)
class TaskRead:
    """What each read task does.

    Attributes:
        memory_bytes: Maximum number of bytes that the task's scan holds.
        batch_size: Maximum number of rows in a batch.
        order: Order of the batches of a task.
    """

    memory_bytes: int
    batch_size: int | None
    order: Order | None

    def __call__(self, splits: Sequence[Split]) -> Iterator[pa.Table]:
        scan = read_splits(
            splits, memory=self.memory_bytes, batch_size=self.batch_size, order=self.order
        )
        for batch in scan:
            yield pa.Table.from_batches([batch])
            del batch  # before the next one is decoded


class IcestreamDatasource(Datasource):  # type: ignore[misc]
    """The splits of a scan. Ray decides how many tasks read them.

    Args:
        splits: Splits from `Scan.splits`.
        schema: The columns of the scan.
        read: What each task does.
    """

    def __init__(self, splits: Sequence[Split], schema: pa.Schema, read: TaskRead) -> None:
        super().__init__()
        self._splits = splits
        self._schema = schema
        self._read = read

    def estimate_inmemory_data_size(self) -> int:
        """The size of all blocks, from which Ray chooses the number of tasks."""
        return _decoded_bytes(self._splits)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, **_: Any
    ) -> list[ReadTask]:
        """One task for each run of consecutive splits. The runs are about equally large."""
        runs = pack(self._splits, tasks=parallelism)
        if not runs:
            empty = BlockMetadata(num_rows=0, size_bytes=0, input_files=None, exec_stats=None)
            return [ReadTask(partial(_nothing, self._schema), empty, schema=self._schema)]
        return [
            ReadTask(
                partial(self._read, run),
                _metadata(run),
                schema=self._schema,
                per_task_row_limit=per_task_row_limit,
            )
            for run in runs
        ]


class IcestreamDatasink(Datasink):  # type: ignore[misc]
    """Writes data files for a commit. Each task writes inside the limit.

    Attributes:
        files: The files of all tasks, when the job has ended. None before.

    Args:
        target: The write.
        memory_bytes: Maximum number of bytes that a task's writer holds.
        schema_mode: What to do if columns differ from the target's.
    """

    def __init__(self, target: WriteTarget, memory_bytes: int, schema_mode: SchemaMode) -> None:
        self.files: list[NewFile] | None = None
        self._target = target
        self._memory_bytes = memory_bytes
        self._schema_mode = schema_mode

    @property
    def min_bytes_per_write(self) -> int:
        """Ray joins smaller blocks in one task, so that they do not become small files."""
        return _BUNDLE_BYTES

    def write(self, blocks: Iterable[Any], ctx: Any) -> tuple[NewFile, ...]:
        """In a task: write its blocks."""
        written: list[NewFile] = []
        tables = (BlockAccessor.for_block(block).to_arrow() for block in blocks)
        with_rows = (table for table in tables if table.num_rows)
        # Without a common schema, blocks without values in a column have the type null there.
        for _, run in groupby(with_rows, key=lambda table: table.schema):
            written += write_files(
                self._target,
                run,
                memory=self._memory_bytes,
                schema_mode="discard" if self._schema_mode == "discard" else "freeze",
                task=ctx.task_idx,
                attempt=uuid.uuid4().int >> 96,  # Ray does not number its attempts.
            )
        return tuple(written)

    def on_write_complete(self, write_result: WriteResult) -> None:
        """In the driver: keep the files for the commit."""
        self.files = [file for files in write_result.write_returns for file in files]


def _nothing(schema: pa.Schema) -> list[pa.Table]:
    return [schema.empty_table()]


def _decoded_bytes(splits: Sequence[Split]) -> int:
    return _DECODED_FACTOR * sum(split.bytes for split in splits)


def _metadata(splits: Sequence[Split]) -> BlockMetadata:
    context = splits[0].context
    exact = not any(split.filtered or split.deletes for split in splits)
    if context.reshape is not None and context.reshape.transform is not None:
        exact = False
    return BlockMetadata(
        num_rows=sum(split.rows for split in splits) if exact else None,
        size_bytes=_decoded_bytes(splits),
        input_files=sorted({split.path for split in splits}),
        exec_stats=None,
    )
