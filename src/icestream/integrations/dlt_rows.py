"""The rows of the files that dlt has written for a table, in types that Iceberg has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import dlt.common.libs.pyiceberg as dlt_iceberg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from icestream.memory.budget import MemoryBudget, over_limit
from icestream.write.sources.file_stream import SourceFiles

_KEY_ROWS = 10_000
_BUFFER_BYTES = 1_000_000

Mask = Callable[[pa.RecordBatch], pa.Array]


class PackageRows:
    """The rows of Parquet files of a package. The stream can be read several times.

    Args:
        paths: The files.
        budget: The budget of the load; half of it is for reading.

    Attributes:
        schema: The schema of every batch, with types as dlt maps them: `wei` is text.
        dropped: Marks rows to leave out; None if there are none.
    """

    def __init__(self, paths: Sequence[str], budget: MemoryBudget) -> None:
        self._files = SourceFiles(sorted(paths), hive_partitions=False, memory=budget)
        fitted = dlt_iceberg.ensure_iceberg_compatible_arrow_schema(self._files.schema)
        required = _required(self._files.paths)
        self.schema = pa.schema([each.with_nullable(each.name not in required) for each in fitted])
        self.dropped: Mask | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        same = self.schema.equals(self._files.schema)
        for batch in self._files:
            fitted = batch if same else batch.cast(self.schema)
            del batch
            if self.dropped is not None:
                fitted = fitted.filter(pc.invert(self.dropped(fitted)))
            yield fitted
            del fitted  # before the next one is read

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)


def _required(paths: Sequence[Path]) -> set[str]:
    """The columns that are required in all files. `SourceFiles` makes all columns optional."""
    schemas = [pq.read_schema(path) for path in paths]
    return set.intersection(
        *({each.name for each in schema if not each.nullable} for schema in schemas)
    )


class RootKeys:
    """The row keys of the rows of a root table in a package.

    Args:
        paths: The files of the root table.
        row_key: The column with the keys.
        budget: The budget of the load.
    """

    def __init__(self, paths: Sequence[str], row_key: str, budget: MemoryBudget) -> None:
        self._paths = sorted(paths)
        self._row_key = row_key
        self._budget = budget

    def named(self, name: str) -> pa.RecordBatchReader:
        """All keys, as a stream with one column of this name."""
        schema = pa.schema([pa.field(name, pa.string())])
        batches = (
            pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string())], schema=schema)
            for batch in self._read([self._row_key])
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def deleted(self, flag: str, marks: Mask) -> pa.Array:
        """The keys of rows that delete.

        Args:
            flag: The column that marks them.
            marks: Reads the column.

        Raises:
            MemoryBudgetError: If they take more than a quarter of the limit.
        """
        keys = [pa.array([], pa.string())]
        limit = self._budget.limit_bytes // 4
        held = 0
        for batch in self._read([self._row_key, flag]):
            keys.append(batch.column(self._row_key).filter(marks(batch)).cast(pa.string()))
            held += keys[-1].nbytes
            if held > limit:
                raise over_limit(
                    "the load deletes too many rows that have nested tables",
                    needed_bytes=8 * held,
                    limit_bytes=self._budget.limit_bytes,
                    otherwise="load fewer rows at a time",
                )
        return pa.concat_arrays(keys)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for path in self._paths:
            file = pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            with closing(file):
                yield from file.iter_batches(batch_size=_KEY_ROWS, columns=list(columns))
