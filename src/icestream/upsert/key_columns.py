"""Which columns make up the key, and where they are in a batch."""

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
        """Settle the key against the table.

        Raises:
            InvalidArgumentError: If there is no key, or a column can't be part of one.
        """
        if on is None:
            names: Sequence[str] = sorted(schema.identifier_field_names())
            if not names:
                raise InvalidArgumentError(
                    f"{table} has no identifier fields: say which columns rows are matched by, "
                    "such as on=['id']"
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
        """Where the key is in batches of a schema."""
        return KeyArrays(tuple(_path(schema.as_struct(), f.field_id) for f in self.fields))


@dataclass(frozen=True, slots=True)
class KeyArrays:
    """Takes the key's columns out of batches of one schema.

    Args:
        paths: For each column the position, and the positions below it in structs.
    """

    paths: tuple[tuple[int, ...], ...]

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The key's columns; a field of a null struct is null."""
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
            f"{table} has no column {name!r} to match rows by: it has {known}"
        ) from error
    try:
        _path(schema.as_struct(), field.field_id)
    except KeyError:
        raise InvalidArgumentError(
            f"column {name!r} of {table} is inside a list or map: rows can't be matched by it"
        ) from None
    if not field.field_type.is_primitive:
        raise InvalidArgumentError(
            f"column {name!r} of {table} is a {field.field_type}: rows are matched by columns of "
            "single values"
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
