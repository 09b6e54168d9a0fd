"""The SQLite catalog of the benchmark, and a writer for the data files of its tables."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

NAMESPACE = "bench"

# The options that PyIceberg 0.12 passes to PyArrow by default.
_PYICEBERG_WRITER = {
    "compression": "zstd",
    "data_page_size": 1024 * 1024,
    "dictionary_pagesize_limit": 2 * 1024 * 1024,
    "write_batch_size": 20_000,
}

# PyArrow's own defaults have dictionaries of 1 MB instead of 2 MB. A reader that decodes page by
# page holds one for each column with mostly distinct values (set b: 28 MB instead of 64 MB).
PYARROW_WRITER = {"dictionary_pagesize_limit": 1024 * 1024, "write_batch_size": 1024}

# PyIceberg's key for the field id of an ORC column.
_ORC_FIELD_ID = b"iceberg.id"


def open_catalog(root: Path) -> SqlCatalog:
    """Open (or create) the catalog below `root`."""
    root = root.resolve()
    (root / "warehouse").mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
        "bench", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse"
    )
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


def load_table(root: Path, table_name: str) -> Table:
    """Load one of the benchmark's tables."""
    return open_catalog(root).load_table((NAMESPACE, table_name))


def local_path(location: str) -> Path:
    """Return the local path of a `file://` location."""
    return Path(location.removeprefix("file://"))


class TableFiller:
    """Writes data files for a new table, and commits them as one snapshot.

    The files look like those of another engine: they have field ids, but no Arrow schema.
    """

    def __init__(self, catalog: SqlCatalog, table_name: str) -> None:
        self._catalog = catalog
        self._identifier = (NAMESPACE, table_name)
        self._files: list[DataFile] = []
        self._table: Table | None = None

    @property
    def table(self) -> Table:
        """The table. It is created with the first file."""
        if self._table is None:
            raise RuntimeError("no file was written yet")
        return self._table

    def parquet(self, row_groups: Iterable[pa.Table], **options: object) -> None:
        """Write one Parquet file with one row group for each table given."""
        writer, path = None, None
        for rows in row_groups:
            if writer is None:
                path = self._next_path(rows.schema, "parquet")
                writer = pq.ParquetWriter(
                    local_path(path),
                    _parquet_schema(self.table),
                    store_schema=False,
                    **(_PYICEBERG_WRITER | options),
                )
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        if writer is None or path is None:
            raise ValueError("a file needs at least one row group")
        writer.close()
        self._files.append(parquet_file_to_data_file(self.table.io, self.table.metadata, path))

    def orc(self, chunks: Iterable[pa.Table], **options: object) -> int:
        """Write one ORC file and return its number of stripes."""
        writer, path, rows = None, None, 0
        for chunk in chunks:
            if writer is None:
                path = self._next_path(chunk.schema, "orc")
                schema = _with_orc_ids(self.table, chunk.schema)
                writer = orc.ORCWriter(str(local_path(path)), **options)
            writer.write(chunk.cast(schema))
            rows += chunk.num_rows
        if writer is None or path is None:
            raise ValueError("a file needs at least one chunk")
        writer.close()
        file = local_path(path)
        self._files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path,
                file_format=FileFormat.ORC,
                partition=Record(),
                record_count=rows,
                file_size_in_bytes=file.stat().st_size,
                spec_id=self.table.metadata.default_spec_id,
            )
        )
        return orc.ORCFile(file).nstripes

    def commit(self) -> Table:
        """Add the files written so far to the table, in one snapshot."""
        with self.table.transaction() as tx, tx.update_snapshot().fast_append() as append:
            for file in self._files:
                append.append_data_file(file)
        self._files = []
        return self.table

    def _next_path(self, schema: pa.Schema, suffix: str) -> str:
        if self._table is None:
            self._table = self._create(schema)
        folder = f"{self._table.location()}/data"
        local_path(folder).mkdir(parents=True, exist_ok=True)
        return f"{folder}/part-{len(self._files):05d}.{suffix}"

    def _create(self, schema: pa.Schema) -> Table:
        # Replace a table that an interrupted run has left.
        with suppress(NoSuchTableError):
            self._catalog.drop_table(self._identifier)
        return self._catalog.create_table(
            self._identifier, schema=schema, properties={"format-version": "2"}
        )


def _parquet_schema(table: Table) -> pa.Schema:
    """Return the table's schema with field ids at every level, for the Parquet writer."""
    return pa.schema([_as_small(field) for field in schema_to_pyarrow(table.schema())])


def _as_small(field: pa.Field) -> pa.Field:
    """Replace large strings, which PyIceberg returns, by plain strings."""
    return field.with_type(_small_type(field.type))


def _small_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_as_small(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_as_small(kind.key_field), _as_small(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_as_small(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _with_orc_ids(table: Table, schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the table's field ids, which PyArrow stores as ORC attributes."""
    return pa.schema(
        [
            field.with_metadata(
                {_ORC_FIELD_ID: str(table.schema().find_field(field.name).field_id).encode()}
            )
            for field in schema
        ]
    )
