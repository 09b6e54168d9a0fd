"""Which rows of a stream say that they delete: a filter over the stream's own columns."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from icestream.commit.removal import null_stays
from icestream.errors import InvalidArgumentError
from icestream.read.rows import Mask, compile_filter, fit_literals
from icestream.upsert.own_columns import decoded
from icestream.write.types import new_type, plain


def delete_mask(where: str | BooleanExpression | None, stream: pa.Schema) -> Mask | None:
    """A function from a batch of the stream to which of its rows delete; None without filter.

    Raises:
        InvalidArgumentError: If the filter does not fit the stream.
    """
    if where is None:
        return None
    schema, row_filter = _bound(where, stream)
    wanted = schema_to_pyarrow(schema, include_field_ids=False)
    mask = compile_filter(row_filter, schema, True)

    def of_batch(batch: pa.RecordBatch) -> pa.Array:
        columns = [decoded(batch.column(f.name)).cast(f.type) for f in wanted]
        return mask(pa.RecordBatch.from_arrays(columns, schema=wanted))

    return of_batch


def delete_columns(where: str | BooleanExpression | None, stream: pa.Schema) -> list[str]:
    """The columns of the stream that the filter needs.

    Raises:
        InvalidArgumentError: If the filter does not fit the stream.
    """
    if where is None:
        return []
    schema, _ = _bound(where, stream)
    return [field.name for field in schema.fields]


def _bound(where: str | BooleanExpression, stream: pa.Schema) -> tuple[Schema, BooleanExpression]:
    """The filter, and the stream's columns that it needs as Iceberg's."""
    try:
        parsed = parse(where) if isinstance(where, str) else where
        schema = _single_values(stream)
        row_filter = null_stays(fit_literals(parsed, schema, True))
        ids = extract_field_ids(bind(schema, row_filter, True))
    except Exception as error:
        raise InvalidArgumentError(
            f"delete_when {where!r} does not fit the stream: {error}. It has the columns "
            f"{', '.join(stream.names[:20])}"
        ) from error
    needed = [f for f in schema.fields if not ids.isdisjoint(Schema(f).field_ids)]
    return Schema(*needed), row_filter


def _single_values(stream: pa.Schema) -> Schema:
    """The stream's columns of single values, as Iceberg has them."""
    fields = []
    for number, field in enumerate(stream, start=1):
        kind = new_type(plain(field.type), format_version=3, downcast_ns=False)
        if kind is not None:
            fields.append(NestedField(number, field.name, kind, required=False))
    return Schema(*fields)
