"""Batches with the columns of a load: one schema for many files, and casts of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from icestream.catalogs.redaction import redact
from icestream.errors import SchemaMismatchError, SourceError
from icestream.write.sources.formats import compression_of


@contextmanager
def read_errors(path: str) -> Iterator[None]:
    """Add the file's path to the errors of its reader."""
    try:
        yield
    except pa.ArrowCancelled:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        text = redact(" ".join(str(error).split()))
        codec = compression_of(path)
        advice = "Fix or exclude the file"
        if isinstance(error, PermissionError):
            advice = "Give this user the right to read it"
        elif codec is not None:
            advice += f", or rename it if it is not compressed with {codec}"
        raise SourceError(f"{redact(path)!r} can't be read: {text}. {advice}") from error


def one_schema(schemas: Sequence[pa.Schema], what: str) -> pa.Schema:
    """The union of all columns, by name; where types differ, the wider one is used.

    Raises:
        SchemaMismatchError: If two types of a column do not fit together.
    """
    if not schemas:
        return pa.schema([])
    try:
        return pa.unify_schemas(
            [schema.remove_metadata() for schema in schemas], promote_options="permissive"
        )
    except pa.ArrowException as error:
        differences = (f"{what} do not go together: {error}",)
        raise SchemaMismatchError(
            f"{differences[0]}. Load them in groups that agree, or cast them first",
            differences=differences,
        ) from error


def fit_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of the schema."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
        else:
            columns.append(cast_text(batch.column(index), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cast_text(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column; unlike Arrow's cast, this one also casts text to times of day."""
    if pa.types.is_time(kind) and pa.types.is_string(column.type):
        # Arrow casts text to timestamps, but not to times of day.
        moments = pc.binary_join_element_wise("1970-01-01", column, " ")
        return moments.cast(pa.timestamp(kind.unit)).cast(kind)
    return column.cast(kind)


def days_as_text(kind: pa.DataType) -> pa.DataType:
    """The type with text instead of dates and times, at every level."""
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, days_as_text(f.type), f.nullable) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return make(kind.value_field.with_type(days_as_text(kind.value_type)))
    return kind


def is_readable_text(kind: pa.DataType, nested: bool) -> bool:
    """Whether the text readers know a type; only the JSON reader knows nested ones."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [kind.field(index).type for index in range(kind.num_fields)]
        return nested and all(
            is_readable_text(each, nested) and not pa.types.is_time(each) for each in inner
        )
    if pa.types.is_nested(kind):
        return False
    return not pa.types.is_binary(kind) and not pa.types.is_fixed_size_binary(kind)
