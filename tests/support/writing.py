"""What writers of files are made from, for tests of one of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import Table

from icestream.memory.budget import MemoryBudget
from icestream.write.new_file import NewFile
from icestream.write.parquet.data_paths import DataPaths
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.parquet.parquet_writer import ParquetFileWriter
from icestream.write.parquet.rolling_writer import RollingWriter
from icestream.write.partition.partitioner import Partitioner
from icestream.write.target import WriteTarget
from icestream.write.writers.write_context import WriteContext


class Parts:
    """Everything that a writer for this table takes."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.target = WriteTarget.of(table)
        self.settings = ParquetSettings.of(table.properties, self.target.schema)
        self.file_schema = schema_to_pyarrow(sanitize_column_names(self.target.schema))
        self.paths = DataPaths(self.target)

    def batch(self, columns: dict[str, object]) -> pa.RecordBatch:
        """Rows with the schema that files have."""
        arrays = [pa.array(columns[field.name], field.type) for field in self.file_schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.file_schema)

    def file_writer(self) -> ParquetFileWriter:
        """A writer of one file."""
        return ParquetFileWriter(
            self.paths.new(),
            target=self.target,
            settings=self.settings,
            file_schema=self.file_schema,
        )

    def context(self, budget: MemoryBudget, pool: EncodePool) -> WriteContext:
        """What all writers of a write share."""
        return WriteContext(
            self.target, self.settings, self.file_schema, budget, pool, DataPaths(self.target)
        )

    def partitioner(self) -> Partitioner:
        """Numbers the partitions of the table."""
        return Partitioner(self.target.schema, self.target.spec)

    def rolling_writer(self, *, row_group_bytes: int = 1 << 20) -> RollingWriter:
        """A writer of one file after another."""
        return RollingWriter(
            self.file_writer,
            target_file_bytes=self.settings.target_file_bytes,
            row_group_bytes=row_group_bytes,
        )

    def data_files(self) -> list[Path]:
        """Whatever files there are in the table's data folder."""
        folder = Path(self.table.location().removeprefix("file://"), "data")
        return sorted(path for path in folder.rglob("*") if path.is_file())


def local_path(new_file: NewFile) -> Path:
    """Where a file is on this machine."""
    return Path(new_file.path.removeprefix("file://"))


def row_groups(new_file: NewFile) -> list[int]:
    """The rows of each row group of a file."""
    metadata = pq.read_metadata(local_path(new_file))
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def read_back(files: Sequence[NewFile]) -> pa.Table:
    """The rows of all files, one file after the other."""
    return pa.concat_tables([pq.ParquetFile(local_path(file)).read() for file in files])
