"""How each column of the stream becomes a column of the file: compiled once, run on every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from icestream.write.schema.nested import decode, nulls, take_apart, takeable, without_nulls
from icestream.write.schema.types import Convert, conversion, is_wrapper, keep

_REFUSALS = (
    pa.ArrowInvalid,
    pa.ArrowNotImplementedError,
    pa.ArrowIndexError,
    pa.ArrowCapacityError,
)


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows. PyArrow's own way fails for extension types in lists and structs."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


class Unstorable(Exception):  # noqa: N818 - internal: becomes an InvalidDataError with the row
    """A value can't be stored; the message says why.

    Attributes:
        column: The column, with dots for nested ones.
    """

    def __init__(self, column: str, why: str) -> None:
        super().__init__(why)
        self.column = column


class Column(Protocol):
    """Converts a column; `hidden` of its nulls are only there because a struct above is null."""

    def __call__(self, array: pa.Array, hidden: int = 0) -> pa.Array: ...


class ColumnCompiler:
    """Makes the function that converts a column, from those for all that is below it.

    Args:
        downcast_ns: Whether nanoseconds may be cut to microseconds.
        loosened: Gets the ids of required fields in which nulls are found, where files allow them.
    """

    def __init__(self, *, downcast_ns: bool, loosened: set[int]) -> None:
        self._downcast_ns = downcast_ns
        self._loosened = loosened

    def column(
        self, source: pa.DataType, wanted: NestedField, target: pa.Field, path: Sequence[str]
    ) -> Column:
        """How arrays of `source` become `target`, with a look for nulls where it is required."""
        convert = self._values(source, wanted.field_type, target.type, path)
        if wanted.optional:
            return _as_is if convert is keep else lambda array, hidden=0: convert(array)
        name, field_id, loosened = ".".join(path), wanted.field_id, self._loosened

        def note(array: pa.Array, hidden: int = 0) -> pa.Array:
            array = convert(array)
            if array.null_count > hidden:
                loosened.add(field_id)
            return array

        def check(array: pa.Array, hidden: int = 0) -> pa.Array:
            array = convert(array)
            count = array.null_count - hidden
            if count:
                raise Unstorable(name, f"it is required, and null {count} times in this batch")
            return without_nulls(array) if hidden else array

        return note if target.nullable else check

    def _values(
        self, source: pa.DataType, wanted: IcebergType, kind: pa.DataType, path: Sequence[str]
    ) -> Convert:
        if pa.types.is_null(source):
            return lambda array: nulls(len(array), kind)
        if isinstance(source, (pa.DictionaryType, pa.RunEndEncodedType)):
            decoded = self._values(takeable(source.value_type), wanted, kind, path)
            return _checked(lambda array: decoded(decode(array)), ".".join(path))
        if is_wrapper(source):
            stored = self._values(source.storage_type, wanted, kind, path)
            return lambda array: stored(array.storage)
        if isinstance(wanted, PrimitiveType):
            convert = conversion(source, wanted, downcast_ns=self._downcast_ns)
            assert convert is not None, f"{source} was found to fit {wanted}"
            return keep if convert is keep else _checked(convert, ".".join(path))
        if isinstance(wanted, StructType):
            return self._struct(source, wanted, kind, path)
        if isinstance(wanted, ListType):
            return self._list(source, wanted, kind, path)
        assert isinstance(wanted, MapType)
        return self._map(source, wanted, kind, path)

    def _struct(
        self, source: pa.StructType, wanted: StructType, kind: pa.StructType, path: Sequence[str]
    ) -> Convert:
        positions = {child.name: at for at, child in enumerate(source)}
        fields = list(kind)
        parts: list[tuple[int | None, bool, Column]] = []
        for below, target in zip(wanted.fields, fields, strict=True):
            at = positions.get(below.name)
            child = pa.null() if at is None else source.field(at).type
            encoded = isinstance(child, pa.RunEndEncodedType)
            if encoded:
                child = takeable(child.value_type)
            column = self.column(child, below, target, (*path, below.name))
            parts.append((at, encoded, column))

        def build(array: pa.StructArray) -> pa.StructArray:
            hidden = array.null_count
            valid = array.is_valid() if hidden else None
            below = array.flatten() if hidden else [array.field(i) for i in range(len(source))]
            children = []
            for at, encoded, column in parts:
                child = pa.nulls(len(array)) if at is None else below[at]
                if encoded:  # has no nulls of its own that flatten() could have set
                    child = decode(child, valid)
                children.append(column(child, hidden))
            mask = array.is_null() if hidden else None
            return pa.StructArray.from_arrays(children, fields=fields, mask=mask)

        return _checked(build, ".".join(path))

    def _list(
        self, source: pa.DataType, wanted: ListType, kind: pa.ListType, path: Sequence[str]
    ) -> Convert:
        element = self.column(
            source.value_type, wanted.element_field, kind.value_field, (*path, "element")
        )

        def build(array: pa.Array) -> pa.ListArray:
            lists = take_apart(array)
            values = element(lists.visible(array.values))
            return pa.ListArray.from_arrays(lists.offsets, values, type=kind, mask=lists.nulls)

        return _checked(build, ".".join(path))

    def _map(
        self, source: pa.MapType, wanted: MapType, kind: pa.MapType, path: Sequence[str]
    ) -> Convert:
        key = self.column(source.key_type, wanted.key_field, kind.key_field, (*path, "key"))
        value = self.column(source.item_type, wanted.value_field, kind.item_field, (*path, "value"))

        def build(array: pa.MapArray) -> pa.MapArray:
            maps = take_apart(array)
            keys = key(maps.visible(array.keys))
            values = value(maps.visible(array.items))
            return pa.MapArray.from_arrays(maps.offsets, keys, values, type=kind, mask=maps.nulls)

        return _checked(build, ".".join(path))


def _as_is(array: pa.Array, hidden: int = 0) -> pa.Array:
    return array


def _checked(convert: Convert, name: str) -> Convert:
    """The same conversion; what Arrow refuses is said of the column."""

    def run(array: pa.Array) -> pa.Array:
        try:
            return convert(array)
        except _REFUSALS as error:
            raise Unstorable(name, str(error)) from error

    return run
