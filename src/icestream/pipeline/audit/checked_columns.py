"""Looks up the columns that tests name in the table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.pipeline.request.checks import Check
from icestream.pipeline.request.validation import suggestion
from icestream.write.rules.stream_filter import decoded


def column_path(name: str, schema: pa.Schema) -> tuple[str, ...]:
    """The path of a column: its name, and the names of fields of structs.

    Raises:
        UnknownColumnError: If the table has no such column.
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
    """The values of a column. A field of a null struct is null."""
    first, *below = path
    array = batch.column(batch.schema.get_field_index(first))
    for part in below:
        array = array.flatten()[array.type.get_field_index(part)]
    return array


def accepted(check: Check, schema: pa.Schema) -> pa.Array:
    """The accepted values of a test, in the column's type.

    Raises:
        InvalidArgumentError: If a value does not have the column's type.
    """
    (name,) = check.columns
    kind = decoded(pa.nulls(0, column_type(name, schema))).type
    try:
        return pa.array(check.values, pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"accepted_values of {name!r} can't be converted to its type, {kind}: {error}"
        ) from error


def refuse_nested(check: Check, schema: pa.Schema) -> None:
    """Refuse a key with nested columns.

    Raises:
        InvalidArgumentError: If a column is nested.
    """
    for name in check.columns:
        kind = column_type(name, schema)
        if pa.types.is_nested(kind):
            raise InvalidArgumentError(
                f"unique names {name!r}, a column of {kind}: name fields of it, as in '{name}.id'"
            )
