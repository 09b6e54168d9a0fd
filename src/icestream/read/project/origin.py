"""The metadata columns, which say where rows come from.

```
_file       the data file's path           _pos      the row's position in it, from 0
_spec_id    the id of the file's spec      _partition  partition values, for the fields of all specs
```
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField, StructType

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.errors import InvalidArgumentError
from icestream.read.project.projection import repeater, table_arrow_schema
from icestream.read.split import ReadContext, Split

METADATA_COLUMNS = ("_file", "_pos", "_partition", "_spec_id")
# For internal use: `Split.number`, which identifies a file with four bytes in each row.
FILE_NUMBER = "_number"

_TYPES = {
    "_file": pa.large_string(),
    "_pos": pa.int64(),
    "_spec_id": pa.int32(),
    FILE_NUMBER: pa.int32(),
}


def check_metadata_columns(names: Sequence[str] | None, schema: Schema) -> tuple[str, ...]:
    """Check the names of requested metadata columns.

    Raises:
        InvalidArgumentError: If a name is unknown, repeated or also a column of the table.
    """
    if names is None:
        return ()
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise InvalidArgumentError(f"metadata_columns is {names!r}: give a list of names")
    known = ", ".join(METADATA_COLUMNS)
    for name in names:
        if name not in METADATA_COLUMNS:
            raise InvalidArgumentError(
                f"metadata_columns contains {name!r}: the metadata columns are {known}"
            )
        if name in schema.column_names:
            raise InvalidArgumentError(
                f"the table has a column named {name!r}: leave it out of metadata_columns"
            )
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"metadata_columns has duplicates: {', '.join(names)}")
    return tuple(names)


def delivered_schema(context: ReadContext) -> pa.Schema:
    """The schema of a scan's batches: its columns, followed by the metadata columns."""
    schema = table_arrow_schema(context.schema)
    for field in _fields(context):
        schema = schema.append(field)
    return schema


def _fields(context: ReadContext) -> list[pa.Field]:
    return [
        pa.field(name, _partition_type(context) if name == "_partition" else _TYPES[name], False)
        for name in context.metadata_columns
    ]


def _partition_type(context: ReadContext) -> pa.DataType:
    assert context.partition_type is not None
    return pa.struct(list(schema_to_pyarrow(context.partition_type, include_field_ids=False)))


class Origin:
    """The metadata columns of one split's rows.

    Attributes:
        row_bytes: Approximate size of the metadata columns in a row.
    """

    def __init__(self, split: Split) -> None:
        self._fields = _fields(split.context)
        self._numbered = "_pos" in split.context.metadata_columns
        constants: dict[str, Callable[[int], pa.Array]] = {
            "_file": repeater(split.path, pa.large_string()),
            "_spec_id": repeater(split.spec_id, pa.int32()),
            FILE_NUMBER: repeater(split.number, pa.int32()),
        }
        if "_partition" in split.context.metadata_columns:
            constants["_partition"] = _struct(split.partition, _partition_type(split.context))
        self._columns = [constants.get(field.name) for field in self._fields]
        self.row_bytes = sum(
            8 if column is None else column(64).nbytes // 64 + 1 for column in self._columns
        )

    def positions(self, first: int, count: int, wanted: pa.Array | None) -> pa.Array | None:
        """The positions of a step's rows in their file; None if `_pos` is not requested."""
        if not self._numbered:
            return None
        offsets = np.arange(count) if wanted is None else wanted.to_numpy()
        return pa.array(first + offsets, pa.int64())

    def append(self, batch: pa.RecordBatch, positions: pa.Array | None) -> pa.RecordBatch:
        """The batch with its metadata columns at the end."""
        arrays, schema = list(batch.columns), batch.schema
        for field, column in zip(self._fields, self._columns, strict=True):
            arrays.append(positions if column is None else column(batch.num_rows))
            schema = schema.append(field)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _struct(values: Sequence[Any], kind: pa.StructType) -> Callable[[int], pa.Array]:
    fields = list(kind)
    parts = [repeater(value, f.type) for value, f in zip(values, fields, strict=True)]
    return lambda count: pa.StructArray.from_arrays([part(count) for part in parts], fields=fields)


class PartitionUnion:
    """The partition fields of all specs of a table, as one struct.

    A field is null for files whose spec does not have it. If different fields have the same name,
    the newest keeps the name, and the others get their ids as a suffix.

    Attributes:
        type: The struct. It has no fields if the table was never partitioned.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        types = _source_types(metadata)
        specs = sorted(metadata.specs().values(), key=lambda spec: spec.spec_id, reverse=True)
        fields: dict[tuple[Any, ...], NestedField] = {}
        names: set[str] = set()
        for spec in specs:
            for part in spec.fields:
                kind = types.get(part.source_id)
                if _key(part) in fields or isinstance(part.transform, VoidTransform) or not kind:
                    continue
                name = part.name if part.name not in names else f"{part.name}_{part.field_id}"
                names.add(name)
                result = part.transform.result_type(kind)
                fields[_key(part)] = NestedField(len(fields) + 1, name, result, required=False)
        self.type = StructType(*fields.values())
        self._places: Mapping[int, list[int | None]] = {
            spec.spec_id: _places(list(fields), [_key(part) for part in spec.fields])
            for spec in specs
        }

    def values(self, file: DataFile) -> tuple[Any, ...]:
        """A file's partition values, in the order of the struct's fields."""
        places = self._places.get(file.spec_id or 0, [None] * len(self.type.fields))
        return tuple(None if place is None else file.partition[place] for place in places)


def _key(part: PartitionField) -> tuple[Any, ...]:
    # In format version 1, different fields of different specs may have the same id.
    return part.field_id, part.source_id, str(part.transform)


def _places(wanted: list[tuple[Any, ...]], there: list[tuple[Any, ...]]) -> list[int | None]:
    return [there.index(key) if key in there else None for key in wanted]


def _source_types(metadata: TableMetadata) -> dict[int, IcebergType]:
    """The type of every column in any schema, from the newest schema that has it."""
    types: dict[int, IcebergType] = {}
    current = metadata.schema()
    for schema in (*(s for s in metadata.schemas if s.schema_id != current.schema_id), current):
        types.update({i: schema.find_type(i) for i in schema.field_ids})
    return types
