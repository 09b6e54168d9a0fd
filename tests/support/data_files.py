"""Data files of every format and shape, written as asked and committed with true metrics.

`write_*_file` writes a file and returns its `DataFile`, for `commit_files`; `add_*_file` commits it
at once, as one snapshot. Columns the Arrow table lacks are not in the file: leave out an identity
partition column and pass `partition=` to get what a Hive migration leaves behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import _to_partition_representation
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tests.support.column_metrics import column_metrics, parquet_metrics
from tests.support.commits import commit_files, v3_metadata_writes


def add_parquet_file(table: Table, rows: pa.Table, **options: Any) -> DataFile:
    """Write a Parquet file as `write_parquet_file` does and commit it as one snapshot."""
    data_file = write_parquet_file(table, rows, **options)
    commit_files(table, [data_file])
    return data_file


def add_orc_file(table: Table, rows: pa.Table, **options: Any) -> DataFile:
    """Write an ORC file as `write_orc_file` does and commit it as one snapshot."""
    data_file = write_orc_file(table, rows, **options)
    commit_files(table, [data_file])
    return data_file


def add_avro_data_file(table: Table, rows: pa.Table, **options: Any) -> DataFile:
    """Write an Avro file as `write_avro_file` does and commit it as one snapshot."""
    data_file = write_avro_file(table, rows, **options)
    commit_files(table, [data_file])
    return data_file


def write_parquet_file(
    table: Table,
    rows: pa.Table,
    *,
    row_group_rows: int | None = None,
    field_ids: bool = True,
    schema: Schema | None = None,
    cast: bool = True,
    path: str | None = None,
    partition: Mapping[str, Any] | Record | None = None,
    spec_id: int | None = None,
    **writer_options: Any,
) -> DataFile:
    """Write a Parquet file.

    Args:
        table: The table it is for.
        rows: Its rows; the file has these columns, in this order.
        row_group_rows: Rows per row group; all in one by default.
        field_ids: Whether the file carries field ids. A file without needs `set_name_mapping`.
        schema: The Iceberg schema that names and types the columns; the current one by default.
        cast: Cast to the schema's own Arrow types. Without, the file keeps the types of `rows`
            (int32 for a long, say) and of nested fields only those ids that `rows` has itself.
        path: The file's URI; a new one in the table's data directory by default.
        partition: Partition values (transformed) by partition field name; derived from the rows
            by default, which must then all be of one partition.
        spec_id: The partition spec; the current one by default.
        **writer_options: Further options of `pyarrow.parquet.write_table`.
    """
    schema = schema or table.schema()
    rows = _in_file_types(rows, schema, FileFormat.PARQUET, field_ids=field_ids, cast=cast)
    location = path or _new_location(table, "parquet")
    output = table.io.new_output(location)
    options = {"store_decimal_as_integer": True, "compression": "zstd", **writer_options}
    with output.create() as stream:
        pq.write_table(rows, stream, row_group_size=row_group_rows, **options)
    with table.io.new_input(location).open() as stream:
        footer = pq.read_metadata(stream)
    statistics = parquet_metrics(table, rows, footer, schema, field_ids=field_ids)
    return _data_file(
        table, rows, FileFormat.PARQUET, location, partition, spec_id, schema, **statistics
    )


def write_orc_file(
    table: Table,
    rows: pa.Table,
    *,
    stripe_rows: int | None = None,
    field_ids: bool = True,
    schema: Schema | None = None,
    cast: bool = True,
    path: str | None = None,
    partition: Mapping[str, Any] | Record | None = None,
    spec_id: int | None = None,
    **writer_options: Any,
) -> DataFile:
    """Write an ORC file. It takes the arguments of `write_parquet_file`, and `stripe_rows`.

    Field ids are `iceberg.id` attributes. PyArrow can write neither time nor uuid columns to ORC,
    and tells no stripe offsets, so there are no split offsets.
    """
    schema = schema or table.schema()
    rows = _in_file_types(rows, schema, FileFormat.ORC, field_ids=field_ids, cast=cast)
    location = path or _new_location(table, "orc")
    if stripe_rows is not None:
        # The writer looks at the stripe size after each batch: any batch fills one byte.
        writer_options = {"batch_size": stripe_rows, "stripe_size": 1, **writer_options}
    with table.io.new_output(location).create() as stream:
        orc.write_table(rows, stream, **writer_options)
    return _data_file(
        table,
        rows,
        FileFormat.ORC,
        location,
        partition,
        spec_id,
        schema,
        record_count=rows.num_rows,
        **column_metrics(rows, schema),
    )


def write_avro_file(
    table: Table,
    rows: pa.Table,
    *,
    path: str | None = None,
    partition: Mapping[str, Any] | Record | None = None,
    spec_id: int | None = None,
) -> DataFile:
    """Write an Avro file of flat rows without dates and times, field ids included."""
    schema = table.schema().select(*rows.column_names)
    location = path or _new_location(table, "avro")
    names = [field.name for field in schema.fields]
    with AvroOutputFile[Record](table.io.new_output(location), schema, "rows") as writer:
        writer.write_block([Record(*map(row.get, names)) for row in rows.to_pylist()])
    return _data_file(
        table,
        rows,
        FileFormat.AVRO,
        location,
        partition,
        spec_id,
        schema,
        record_count=rows.num_rows,
        **column_metrics(rows, schema),
    )


def set_name_mapping(table: Table) -> None:
    """Give the table a name mapping made from its current schema, as migrated tables have."""
    with v3_metadata_writes(), table.transaction() as transaction:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})


def _in_file_types(
    rows: pa.Table, schema: Schema, file_format: FileFormat, *, field_ids: bool, cast: bool
) -> pa.Table:
    target = schema_to_pyarrow(schema, include_field_ids=field_ids, file_format=file_format)
    fields = [target.field(name) for name in rows.column_names]
    if cast:
        return rows.cast(pa.schema(fields))
    metadata = [field.metadata if field_ids else None for field in fields]
    kept = [field.with_metadata(meta) for field, meta in zip(rows.schema, metadata, strict=True)]
    return rows.cast(pa.schema(kept))


def _data_file(
    table: Table,
    rows: pa.Table,
    file_format: FileFormat,
    location: str,
    partition: Mapping[str, Any] | Record | None,
    spec_id: int | None,
    schema: Schema,
    **statistics: Any,
) -> DataFile:
    spec_id = table.spec().spec_id if spec_id is None else spec_id
    if not isinstance(partition, Record):
        partition = _partition_of(table, rows, partition, spec_id, schema)
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=file_format,
        partition=partition,
        file_size_in_bytes=len(table.io.new_input(location)),
        **statistics,
    )
    data_file.spec_id = spec_id
    return data_file


def _partition_of(
    table: Table, rows: pa.Table, given: Mapping[str, Any] | None, spec_id: int, schema: Schema
) -> Record:
    values = []
    for field in table.specs()[spec_id].fields:
        if given is not None and field.name in given:
            source_type = table.schema().find_type(field.source_id)
            result_type = field.transform.result_type(source_type)
            values.append(_to_partition_representation(result_type, given[field.name]))
            continue
        source = schema.find_field(field.source_id)
        transform = field.transform.transform(source.field_type)
        found = {
            transform(_to_partition_representation(source.field_type, value))
            for value in pc.unique(rows[schema.find_column_name(source.field_id)]).to_pylist()
        }
        if len(found) != 1:
            raise ValueError(f"rows are of {len(found)} partitions in {field.name}: {found}")
        values.append(found.pop())
    return Record(*values)


def _new_location(table: Table, extension: str) -> str:
    return table.location_provider().new_data_location(f"{uuid.uuid4()}.{extension}")
