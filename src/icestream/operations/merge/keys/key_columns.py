"""The columns of the key, and their places in a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from icestream.errors import InvalidArgumentError, UnknownColumnError


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns that rows are matched by.

    Attributes:
        names: Their names, with dots for fields of structs.
        fields: The same as Iceberg fields.
    """

    names: tuple[str, ...]
    fields: tuple[NestedField, ...]

    @classmethod
    def of(cls, schema: Schema, on: Sequence[str] | str | None, *, table: str) -> KeyColumns:
        """Look up the key columns in the table.

        Raises:
            InvalidArgumentError: If there is no key, or a column can't be part of one.
        """
        if on is None:
            names: Sequence[str] = sorted(schema.identifier_field_names())
            if not names:
                raise InvalidArgumentError(
                    f"{table} has no identifier fields: name the key columns, such as on=['id']"
                )
        else:
            names = [on] if isinstance(on, str) else list(on)
        if not names or not all(isinstance(name, str) for name in names):
            raise InvalidArgumentError(f"on is {on!r}: give the name of a column, or several")
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"on names a column twice: {', '.join(names)}")
        fields = tuple(_key_field(schema, name, table) for name in names)
        return cls(tuple(names), fields)

    @property
    def ids(self) -> frozenset[int]:
        """The fields' ids."""
        return frozenset(field.field_id for field in self.fields)

    def in_batches_of(self, schema: Schema) -> KeyArrays:
        """Find the key columns in batches of a schema."""
        return KeyArrays(tuple(_path(schema.as_struct(), f.field_id) for f in self.fields))


@dataclass(frozen=True, slots=True)
class KeyArrays:
    """Extracts the key columns from batches of one schema.

    Args:
        paths: The path of each column: its position, then the positions inside structs.
    """

    paths: tuple[tuple[int, ...], ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key columns; a field of a null struct is null."""
        arrays = []
        for first, *below in self.paths:
            array = batch.column(first)
            for position in below:
                array = array.flatten()[position]
            arrays.append(array)
        return arrays


def _key_field(schema: Schema, name: str, table: str) -> NestedField:
    try:
        field = schema.find_field(name)
    except ValueError as error:
        known = ", ".join(schema.column_names[:20])
        raise UnknownColumnError(
            f"{table} has no column {name!r}, which is in the key: it has {known}"
        ) from error
    try:
        _path(schema.as_struct(), field.field_id)
    except KeyError:
        raise InvalidArgumentError(
            f"column {name!r} of {table} is inside a list or map, so it can't be in the key"
        ) from None
    if not field.field_type.is_primitive:
        raise InvalidArgumentError(
            f"column {name!r} of {table} is a {field.field_type}: key columns must hold single "
            "values"
        )
    return field


def _path(struct: StructType, field_id: int) -> tuple[int, ...]:
    for position, field in enumerate(struct.fields):
        if field.field_id == field_id:
            return (position,)
        if isinstance(field.field_type, StructType):
            try:
                return (position, *_path(field.field_type, field_id))
            except KeyError:
                continue
    raise KeyError(field_id)
