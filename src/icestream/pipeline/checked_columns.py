"""The columns that tests name, against those that the table has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.pipeline.checks import Check
from icestream.pipeline.choice import suggestion
from icestream.upsert.own_columns import decoded


def column_path(name: str, schema: pa.Schema) -> tuple[str, ...]:
    """The column's name, and those below it in structs.

    Raises:
        UnknownColumnError: If there is no such column.
    """
    if name in schema.names:
        return (name,)
    first, *below = name.split(".")
    if first in schema.names:
        kind = schema.field(first).type
        for part in below:
            if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
                break
            kind = kind.field(part).type
        else:
            return (first, *below)
    raise UnknownColumnError(
        f"a test names the column {name!r}, which the table does not have: "
        f"{suggestion(name, tuple(schema.names))}"
    )


def column_type(name: str, schema: pa.Schema) -> pa.DataType:
    """The type of a column."""
    first, *below = column_path(name, schema)
    kind = schema.field(first).type
    for part in below:
        kind = kind.field(part).type
    return kind


def column_of(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """A column's values; a field of a null struct is null."""
    first, *below = path
    array = batch.column(batch.schema.get_field_index(first))
    for part in below:
        array = array.flatten()[array.type.get_field_index(part)]
    return array


def accepted(check: Check, schema: pa.Schema) -> pa.Array:
    """The values that a test accepts, as the column has them.

    Raises:
        InvalidArgumentError: If one can't be a value of the column.
    """
    (name,) = check.columns
    kind = decoded(pa.nulls(0, column_type(name, schema))).type
    try:
        return pa.array(check.values, pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"accepted_values of {name!r} can't be values of its type, {kind}: {error}"
        ) from error


def refuse_nested(name: str, schema: pa.Schema) -> None:
    """Refuse a column that can't be part of a key.

    Raises:
        InvalidArgumentError: If it is nested.
    """
    kind = column_type(name, schema)
    if pa.types.is_nested(kind):
        raise InvalidArgumentError(
            f"unique names {name!r}, a column of {kind}: name fields of it, as in '{name}.id'"
        )
