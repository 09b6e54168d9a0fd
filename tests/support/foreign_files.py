"""Data files as other writers leave them: any Arrow types under the table's field ids, no metrics.

`tests.support.data_files` writes what fits the table. These need not: an int32 or a string under
the id of a long column, nanoseconds under microseconds, a struct that lacks a field.
"""

from __future__ import annotations

import uuid
from typing import Any, Literal

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import ORC_FIELD_ID_KEY, PYARROW_PARQUET_FIELD_ID_KEY
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tests.support.commits import commit_files


def add_foreign_file(
    table: Table,
    rows: pa.Table,
    *,
    file_format: Literal["parquet", "orc"] = "parquet",
    **writer_options: Any,
) -> DataFile:
    """Write rows in their own types, with the ids of the table's fields of the same names.

    Fields that the table does not know get no id. The file is committed as one snapshot of an
    unpartitioned table.
    """
    key = ORC_FIELD_ID_KEY if file_format == "orc" else PYARROW_PARQUET_FIELD_ID_KEY
    fields = _with_ids(list(rows.schema), table.schema().as_struct(), key)
    rows = pa.Table.from_arrays(
        [_retyped(c, f.type) for c, f in zip(rows.columns, fields, strict=True)],
        schema=pa.schema(fields),
    )
    location = table.location_provider().new_data_location(f"{uuid.uuid4()}.{file_format}")
    output = table.io.new_output(location)
    with output.create() as stream:
        write = orc.write_table if file_format == "orc" else pq.write_table
        write(rows, stream, **writer_options)
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat(file_format),
        partition=Record(),
        record_count=rows.num_rows,
        file_size_in_bytes=len(output),
    )
    data_file.spec_id = table.spec().spec_id
    commit_files(table, [data_file])
    return data_file


def _with_ids(fields: list[pa.Field], struct: StructType, key: bytes) -> list[pa.Field]:
    known = {field.name: field for field in struct.fields}
    marked = []
    for field in fields:
        if field.name in known:
            iceberg = known[field.name]
            field = _marked(field, iceberg.field_id, iceberg.field_type, key)
        marked.append(field)
    return marked


def _marked(field: pa.Field, field_id: int, kind: IcebergType, key: bytes) -> pa.Field:
    arrow = field.type
    if isinstance(arrow, pa.StructType) and isinstance(kind, StructType):
        arrow = pa.struct(_with_ids(list(arrow), kind, key))
    elif isinstance(arrow, (pa.ListType, pa.LargeListType)) and isinstance(kind, ListType):
        make = pa.list_ if isinstance(arrow, pa.ListType) else pa.large_list
        arrow = make(_marked(arrow.value_field, kind.element_id, kind.element_type, key))
    elif isinstance(arrow, pa.MapType) and isinstance(kind, MapType):
        arrow = pa.map_(
            _marked(arrow.key_field, kind.key_id, kind.key_type, key),
            _marked(arrow.item_field, kind.value_id, kind.value_type, key),
        )
    return field.with_type(arrow).with_metadata({key: str(field_id).encode()})


def _retyped(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the column with the ids in its type; only nested types carry any."""
    return column.cast(kind) if kind.num_fields else column
