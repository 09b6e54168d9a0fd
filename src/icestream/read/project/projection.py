"""Convert the columns of a file to the columns of the table, matched by field id.

`compile_projection` builds a list of functions once for each file schema. Projecting a batch calls
these functions. Columns that already have the right type are passed through.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.read.project.conversion import convert_primitive

_ID_KEYS = (b"PARQUET:field_id", b"iceberg.id")
_NUMBER = re.compile(rb"-?[0-9]{1,10}")
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_WITH_OFFSETS = (pa.ListType, pa.LargeListType, pa.MapType)

Column = Callable[[pa.Array], pa.Array]
"""Turns an array of the file into an array of the table."""

Child = Callable[[Any], pa.Array]
"""Takes a batch or a struct of the file. Returns one of its columns, as an array of the table."""


class Unprojectable(Exception):  # noqa: N818 - internal: becomes a ProjectionError with the path
    """The file's schema can't be projected. The message names the field and the reason."""


def table_arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a scan's batches, as PyIceberg converts it."""
    return schema_to_pyarrow(schema, include_field_ids=False)


class FieldIds:
    """Field ids of a file's columns, from the file or from the table's name mapping."""

    def __init__(self, file_schema: pa.Schema, mapping: NameMapping | None) -> None:
        self._in_file = any(_has_ids(f) for f in file_schema)
        if not self._in_file and mapping is None:
            raise Unprojectable(
                "the file has no field ids and the table has no name mapping: set the table "
                "property schema.name-mapping.default"
            )
        self._root = tuple(mapping.root) if mapping is not None else ()

    def root(self) -> _Scope:
        """The scope of the top-level fields."""
        return _Scope(None if self._in_file else self._root)


class _Scope:
    """The mapped names at one level; None if ids come from the file."""

    def __init__(self, mapped: tuple[MappedField, ...] | None) -> None:
        self._mapped = mapped

    def field_id(self, field: pa.Field, name: str) -> int | None:
        if self._mapped is None:
            return _id_of(field)
        mapped = self._find(name)
        return mapped.field_id if mapped is not None else None

    def below(self, name: str) -> _Scope:
        if self._mapped is None:
            return self
        mapped = self._find(name)
        return _Scope(tuple(mapped.fields) if mapped is not None else ())

    def _find(self, name: str) -> MappedField | None:
        return next((m for m in self._mapped or () if name in m.names), None)


def _id_of(field: pa.Field) -> int | None:
    metadata = field.metadata or {}
    stored = next((metadata[key] for key in _ID_KEYS if key in metadata), None)
    if stored is None:
        return None
    if not _NUMBER.fullmatch(stored):
        shown = stored[:40].decode("utf-8", "backslashreplace")
        raise Unprojectable(
            f"its column {field.name!r} has the field id {shown!r}, which is not a number: the "
            "file is damaged, or its writer does not support Iceberg"
        )
    return int(stored)


def _has_ids(field: pa.Field) -> bool:
    return _id_of(field) is not None or any(_has_ids(child) for child in _children(field.type))


def _children(kind: pa.DataType) -> list[pa.Field]:
    if isinstance(kind, pa.StructType):
        return list(kind)
    if isinstance(kind, _LISTS):
        return [kind.value_field]
    if isinstance(kind, pa.MapType):
        return [kind.key_field, kind.item_field]
    return []


def leaf_columns(file_schema: pa.Schema, wanted: Schema, ids: FieldIds) -> list[int]:
    """The Parquet leaf columns to decode for the wanted fields.

    If the file has none of the wanted fields of a struct, list or map, one leaf is still decoded
    for its nulls and lengths.
    """
    picked: list[int] = []
    _pick_struct(list(file_schema), wanted.as_struct(), ids.root(), 0, picked)
    return picked


def _pick_struct(
    fields: list[pa.Field], wanted: StructType, scope: _Scope, first: int, picked: list[int]
) -> None:
    by_id = {f.field_id: f for f in wanted.fields}
    for field in fields:
        target = by_id.get(scope.field_id(field, field.name) or -1)
        if target is not None:
            _pick(field, target.field_type, scope.below(field.name), first, picked)
        first += leaf_count(field.type)


def _pick(
    field: pa.Field, wanted: IcebergType, scope: _Scope, first: int, picked: list[int]
) -> None:
    before = len(picked)
    kind = field.type
    if isinstance(kind, pa.StructType) and isinstance(wanted, StructType):
        _pick_struct(list(kind), wanted, scope, first, picked)
        if len(picked) == before:
            picked.append(first)
    elif isinstance(kind, _LISTS) and isinstance(wanted, ListType):
        _pick(kind.value_field, wanted.element_type, scope.below("element"), first, picked)
    elif isinstance(kind, pa.MapType) and isinstance(wanted, MapType):
        _pick(kind.key_field, wanted.key_type, scope.below("key"), first, picked)
        values = first + leaf_count(kind.key_field.type)
        _pick(kind.item_field, wanted.value_type, scope.below("value"), values, picked)
    else:
        picked.extend(range(first, first + leaf_count(kind)))


def leaf_count(kind: pa.DataType) -> int:
    """Number of Parquet leaf columns that store a type."""
    if not kind.num_fields or isinstance(kind, pa.BaseExtensionType):
        return 1
    return sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields))


class Projection:
    """A compiled projection from batches of one file schema to batches of the table's schema."""

    def __init__(self, schema: pa.Schema, columns: list[Child]) -> None:
        self.schema = schema
        self._columns = columns

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [column(batch) for column in self._columns]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def compile_projection(
    file_schema: pa.Schema,
    wanted: Schema,
    ids: FieldIds,
    *,
    constants: Mapping[int, Any],
    downcast_ns: bool,
) -> Projection:
    """Compile the projection from batches of `file_schema` to batches of the table's schema.

    Raises:
        Unprojectable: If a field is required but absent, or its type can't be promoted.
    """
    compiler = _Compiler(constants, downcast_ns)
    target = table_arrow_schema(wanted)
    fields = list(file_schema)
    columns, _ = compiler.children(fields, wanted.fields, target, ids.root(), pa.RecordBatch.column)
    return Projection(target, columns)


class _Compiler:
    def __init__(self, constants: Mapping[int, Any], downcast_ns: bool) -> None:
        self._constants = constants
        self._downcast_ns = downcast_ns

    def absent(self, field: NestedField, kind: pa.DataType) -> Callable[[int], pa.Array]:
        """A column that the file lacks: its partition value, initial default, or nulls."""
        # A null partition value takes precedence over a default.
        known = field.field_id in self._constants
        value = self._constants[field.field_id] if known else field.initial_default
        if value is not None:
            return repeater(value, kind)
        if field.required and not known:
            raise Unprojectable(
                f"the table requires column {field.name!r} (id {field.field_id}), which the file "
                "lacks and which has no default"
            )
        return lambda count: pa.nulls(count, kind)

    def children(
        self,
        source: list[pa.Field],
        wanted: tuple[NestedField, ...],
        target: Iterable[pa.Field],
        scope: _Scope,
        get: Callable[[Any, int], pa.Array],
    ) -> tuple[list[Child], bool]:
        """The columns of a batch or of a struct, and whether the file already has exactly these.

        Args:
            source: The fields in the file.
            wanted: The fields of the table.
            target: The fields of the table as Arrow fields.
            scope: The field ids of `source`.
            get: Takes a batch or a struct, and a position. Returns the column there.
        """
        positions: dict[int, int] = {}
        for position, field in enumerate(source):
            field_id = scope.field_id(field, field.name)
            if field_id is not None:
                positions.setdefault(field_id, position)
        children: list[Child] = []
        same = len(source) == len(wanted)
        for order, (child, arrow) in enumerate(zip(wanted, target, strict=True)):
            at = positions.get(child.field_id)
            if at is None:
                children.append(_absent_child(self.absent(child, arrow.type)))
                same = False
                continue
            below = scope.below(source[at].name)
            convert = self.column(source[at], child, arrow.type, below)
            children.append(_present_child(get, at, convert))
            same = same and at == order and convert is None
        return children, same

    def column(
        self, source: pa.Field, field: NestedField, kind: pa.DataType, scope: _Scope
    ) -> Column | None:
        """The conversion of a column; None if it already has the right type."""
        wanted = field.field_type
        if pa.types.is_null(source.type):
            return lambda array: pa.nulls(len(array), kind)
        if isinstance(wanted, StructType):
            return self._struct(source, field, kind, scope)
        if isinstance(wanted, ListType):
            return self._list(source, wanted, field, kind, scope)
        if isinstance(wanted, MapType):
            return self._map(source, wanted, field, kind, scope)
        if source.type == kind:
            return None
        convert = convert_primitive(source.type, kind, wanted, downcast_ns=self._downcast_ns)
        if convert is None:
            raise Unprojectable(
                f"column {field.name!r} (id {field.field_id}) is {source.type} in the file and "
                f"{wanted} in the table, and Iceberg does not allow this promotion"
            )
        return convert

    def _struct(
        self, source: pa.Field, field: NestedField, kind: pa.StructType, scope: _Scope
    ) -> Column | None:
        if not isinstance(source.type, pa.StructType):
            raise _mismatch(source, field)
        wanted = field.field_type
        assert isinstance(wanted, StructType)
        parts, same = self.children(
            list(source.type), wanted.fields, kind, scope, pa.StructArray.field
        )
        if same and _same_type(source.type, kind):
            return None
        fields = list(kind)

        def build(array: pa.StructArray) -> pa.StructArray:
            array = _unsliced(array)
            children = [part(array) for part in parts]
            # Without children, only the mask has the length of the array.
            mask = array.is_null() if array.null_count or not children else None
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

        return build

    def _list(
        self,
        source: pa.Field,
        wanted: ListType,
        field: NestedField,
        kind: pa.LargeListType,
        scope: _Scope,
    ) -> Column | None:
        if not isinstance(source.type, _LISTS):
            raise _mismatch(source, field)
        convert = self.column(
            source.type.value_field, wanted.element_field, kind.value_type, scope.below("element")
        )
        if convert is None and _same_type(source.type, kind):
            return None

        def build(array: pa.Array) -> pa.LargeListArray:
            if isinstance(array, pa.FixedSizeListArray):
                array = array.cast(pa.large_list(array.type.value_field))
            array = _unsliced(array)
            values = array.values if convert is None else convert(array.values)
            mask = array.is_null() if array.null_count else None
            offsets = array.offsets.cast(pa.int64())
            return pa.LargeListArray.from_arrays(offsets, values, type=kind, mask=mask)

        return build

    def _map(
        self, source: pa.Field, wanted: MapType, field: NestedField, kind: pa.MapType, scope: _Scope
    ) -> Column | None:
        if not isinstance(source.type, pa.MapType):
            raise _mismatch(source, field)
        below = source.type
        key = self.column(below.key_field, wanted.key_field, kind.key_type, scope.below("key"))
        item = self.column(
            below.item_field, wanted.value_field, kind.item_type, scope.below("value")
        )
        if key is None and item is None and _same_type(below, kind):
            return None

        def build(array: pa.MapArray) -> pa.MapArray:
            array = _unsliced(array)
            keys = array.keys if key is None else key(array.keys)
            items = array.items if item is None else item(array.items)
            mask = array.is_null() if array.null_count else None
            return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)

        return build


def _same_type(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether types are equal, including child names and nullability, to share one schema."""
    return bool(source.equals(kind)) and str(source) == str(kind)


def _unsliced(array: pa.Array) -> pa.Array:
    """Copy an array whose children contain more than its own rows.

    `from_arrays` can't combine offsets with masks. Besides, a slice of a list column still has the
    values of all rows, which may not fit into memory when they are decoded.
    """
    longer = isinstance(array.type, _WITH_OFFSETS) and array.offsets[-1].as_py() < len(array.values)
    return pa.concat_arrays([array]) if array.offset or longer else array


def _present_child(get: Callable[[Any, int], pa.Array], at: int, convert: Column | None) -> Child:
    if convert is None:
        return lambda parent: get(parent, at)
    return lambda parent: convert(get(parent, at))


def _absent_child(repeat: Callable[[int], pa.Array]) -> Child:
    return lambda parent: repeat(len(parent))


def _mismatch(source: pa.Field, field: NestedField) -> Unprojectable:
    return Unprojectable(
        f"column {field.name!r} (id {field.field_id}) is {source.type} in the file and "
        f"{field.field_type} in the table"
    )


def repeater(value: Any, kind: pa.DataType) -> Callable[[int], pa.Array]:
    """A function that repeats one value, as Iceberg stores it (a date is a number of days)."""
    if value is None:
        return lambda count: pa.nulls(count, kind)
    extended = isinstance(kind, pa.BaseExtensionType)
    plain = value.bytes if isinstance(value, UUID) else value
    scalar = pa.scalar(plain, type=kind.storage_type if extended else kind)

    def repeat(count: int) -> pa.Array:
        array = pa.repeat(scalar, count)
        return kind.wrap_array(array) if extended else array

    return repeat


def select_columns(batch_schema: Schema, wanted: Schema) -> Projection | None:
    """A projection that drops the columns which only the filter needed; None without any."""
    source = schema_to_pyarrow(batch_schema, include_field_ids=True)
    if batch_schema == wanted or batch_schema.as_struct() == wanted.as_struct():
        return None
    ids = FieldIds(source, None)
    return compile_projection(source, wanted, ids, constants={}, downcast_ns=False)
