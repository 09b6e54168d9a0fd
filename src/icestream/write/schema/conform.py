"""Converts batches of a stream to the schema of files.

The conversion functions are compiled once per stream, and run on every batch. Columns that already
fit pass through without a copy. Files get PyIceberg's types with 32-bit offsets: `string`, `binary`
and `list`, never their large forms. The text of a row group is far below 2 GB, and smaller offsets
take less memory and time to encode.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from icestream.errors import InvalidDataError, UnsupportedFeatureError
from icestream.write.schema.columns import Column, ColumnCompiler, Unstorable
from icestream.write.schema.comparison import Difference, SchemaMode, compare, never_optional
from icestream.write.schema.nested import nulls
from icestream.write.schema.schema_plan import check_mode, mismatch
from icestream.write.schema.sizes import cut_by, written_out_bytes
from icestream.write.schema.types import downcasts_nanoseconds, file_type

_FIELD_ID = b"PARQUET:field_id"
_DOC = b"doc"


class Conformer:
    """Turns a stream's batches into what files get.

    Args:
        arrow_schema: The stream's schema.
        schema: The table's schema as planned by `plan_schema`, so that every column fits.
        mode: With `evolve`, nulls in required columns are not errors but noted in `loosened`.
        table: The table's name, for messages.
        downcast_ns: As in `plan_schema`.

    Attributes:
        file_schema: The schema of every converted batch, with field ids. Required columns are not
            nullable in it, except with `evolve`, where a null may still come.
        loosened: Ids of required fields in which nulls were found: the commit makes them optional.
            Only with `evolve`; identifiers and keys of maps are an error in every mode.
        rows: Rows converted so far.

    Raises:
        SchemaMismatchError: If a column does not fit the schema.
        UnsupportedFeatureError: If the table has a type that can't be written.

    Memory: what comes out shares the buffers of columns that need no cast. `convert` takes batches
        that fit 32-bit offsets once converted: below 512 MB they do. `pieces` takes any batch.
    """

    def __init__(
        self,
        arrow_schema: pa.Schema,
        schema: Schema,
        *,
        mode: SchemaMode,
        table: str,
        downcast_ns: bool | None = None,
    ) -> None:
        check_mode(mode)
        cut = downcasts_nanoseconds() if downcast_ns is None else downcast_ns
        _check_planned(arrow_schema, schema, mode=mode, table=table, downcast_ns=cut)
        self._table = table
        self.rows = 0
        self.loosened: set[int] = set()
        names = _file_names(schema, table)
        fixed = None if mode != "evolve" else never_optional(schema)
        self.file_schema = pa.schema([_file_field(f, fixed) for f in names.fields])
        compiler = ColumnCompiler(downcast_ns=cut, loosened=self.loosened)
        positions = {name: at for at, name in enumerate(arrow_schema.names)}
        self._columns: list[tuple[int | None, Column]] = []
        absent: dict[pa.DataType, pa.Array] = {}
        self._row_bits: int = 0
        self._measured: list[int] = []
        for wanted, target in zip(schema.fields, self.file_schema, strict=True):
            at = positions.get(wanted.name)
            width = _fixed_bits(target.type)
            if width is None and at is not None:
                self._measured.append(at)
            self._row_bits += width or 0
            if at is None:
                self._columns.append((None, _null_column(target.type, absent)))
                continue
            source = arrow_schema.field(at).type
            self._columns.append((at, compiler.column(source, wanted, target, (wanted.name,))))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch as files get it: `file_schema`, exactly.

        Raises:
            InvalidDataError: If a value can't be stored: naming the column and the row, counted
                from 0 at the stream's first.
        """
        columns = batch.columns
        absent = pa.nulls(batch.num_rows)
        arrays = []
        for position, convert in self._columns:
            array = absent if position is None else columns[position]
            try:
                arrays.append(convert(array))
            except Unstorable as error:
                raise self._at_row(error, convert, array) from error
        self.rows += batch.num_rows
        return pa.RecordBatch.from_arrays(arrays, schema=self.file_schema)

    def pieces(self, batch: pa.RecordBatch, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """A batch of any size, converted slice by slice.

        Args:
            batch: The batch.
            max_bytes: About how many bytes each slice may take once it is converted; one row may
                take more.

        Raises:
            InvalidDataError: As `convert`.
        """
        return map(self.convert, cut_by(batch, max_bytes, self._bytes))

    def _bytes(self, batch: pa.RecordBatch) -> int:
        """About how many bytes the batch takes once it is converted."""
        measured = (written_out_bytes(batch.column(at)) for at in self._measured)
        return self._row_bits * int(batch.num_rows) // 8 + sum(measured)

    def _at_row(self, error: Unstorable, convert: Column, array: pa.Array) -> InvalidDataError:
        """Find the first row that can't be stored: the shortest beginning that fails, less one."""
        low, high = 1, len(array)
        while low < high:
            middle = (low + high) // 2
            try:
                convert(array.slice(0, middle))
                low = middle + 1
            except Unstorable:
                high = middle
        return InvalidDataError(
            f"column {error.column!r} of the stream can't be stored in {self._table}: {error}; "
            f"first in row {self.rows + low - 1}, counted from 0: fix the value",
            column=error.column,
        )


def _null_column(kind: pa.DataType, arrays: dict[pa.DataType, pa.Array]) -> Column:
    """A column that is not in the stream: all of the same type and length share one array."""
    if pa.types.is_nested(kind):  # whose equality does not see field ids
        return lambda array, hidden=0: nulls(len(array), kind)

    def shared(array: pa.Array, hidden: int = 0) -> pa.Array:
        nulls = arrays.get(kind)
        if nulls is None or len(nulls) != len(array):
            nulls = arrays[kind] = pa.nulls(len(array), kind)
        return nulls

    return shared


def _check_planned(
    arrow_schema: pa.Schema, schema: Schema, *, mode: SchemaMode, table: str, downcast_ns: bool
) -> None:
    result = compare(schema, arrow_schema, mode=mode, format_version=2, downcast_ns=downcast_ns)
    if not result.differences:
        result.differences.extend(
            Difference(f"the schema is not ready for the stream: {change.text}")
            for change in result.changes
        )
    if result.differences:
        raise mismatch(table, result, evolving_helps=False)


def _fixed_bits(kind: pa.DataType) -> int | None:
    """How many bits a value takes, if all take as many."""
    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    types = pa.types
    fixed = types.is_primitive(kind) or types.is_fixed_size_binary(kind) or types.is_decimal(kind)
    return int(kind.bit_width) if fixed else None


def _file_field(wanted: NestedField, fixed: frozenset[int] | None) -> pa.Field:
    """The field of a file; all but the `fixed` ids are nullable if ids are given."""
    metadata = {_FIELD_ID: str(wanted.field_id)}
    if wanted.doc:
        metadata[_DOC] = wanted.doc
    nullable = wanted.optional or (fixed is not None and wanted.field_id not in fixed)
    kind = _file_kind(wanted.field_type, fixed)
    return pa.field(wanted.name, kind, nullable=nullable, metadata=metadata)


def _file_kind(wanted: IcebergType, fixed: frozenset[int] | None) -> pa.DataType:
    if isinstance(wanted, StructType):
        return pa.struct([_file_field(f, fixed) for f in wanted.fields])
    if isinstance(wanted, ListType):
        return pa.list_(_file_field(wanted.element_field, fixed))
    if isinstance(wanted, MapType):
        key = _file_field(wanted.key_field, fixed)
        return pa.map_(key, _file_field(wanted.value_field, fixed))
    assert isinstance(wanted, PrimitiveType)
    return file_type(wanted)


def _file_names(schema: Schema, table: str) -> Schema:
    """The schema with the names that columns have in files."""
    try:
        return sanitize_column_names(schema)
    except ValueError as error:
        raise UnsupportedFeatureError(
            f"two columns of {table} would have one name in Parquet files, where characters other "
            f"than letters, digits and _ are replaced ({error}): rename one of them"
        ) from error
