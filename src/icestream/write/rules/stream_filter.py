"""A row filter, in the language of PyIceberg, over the columns of an Arrow stream.

The filter may name fields of structs, as in `address.city = 'Oslo'`. A row whose columns are null
matches only where the filter says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.read.filters.fitting import fit_filter
from icestream.read.project.row_filter import Mask, compile_filter, null_stays
from icestream.write.schema.types import new_type, plain


@dataclass(frozen=True, slots=True)
class StreamFilter:
    """A filter that is bound to the columns of a stream.

    Attributes:
        columns: The columns of the stream that it needs.
        mask: A function that marks the matching rows of a batch.
    """

    columns: tuple[str, ...]
    mask: Mask

    @classmethod
    def of(
        cls, where: str | BooleanExpression, stream: pa.Schema, *, option: str = "where"
    ) -> StreamFilter:
        """Bind a filter.

        Args:
            where: The filter.
            stream: The columns of the stream.
            option: The name of the option, for messages.

        Raises:
            UnknownColumnError: If the stream lacks a column.
            InvalidArgumentError: If the filter does not fit the stream.
        """
        paths = dict(_values(stream))
        fields = [
            NestedField(number, name, kind, required=False)
            for number, (name, (_, kind)) in enumerate(paths.items(), start=1)
        ]
        row_filter = null_stays(fit_filter(where, Schema(*fields), label=_label(option)))
        ids = extract_field_ids(bind(Schema(*fields), row_filter, True))
        needed = Schema(*(field for field in fields if field.field_id in ids))
        wanted = schema_to_pyarrow(needed, include_field_ids=False)
        matches = compile_filter(row_filter, needed, True)
        places = [paths[field.name][0] for field in needed.fields]

        def mask(batch: pa.RecordBatch) -> pa.Array:
            columns = [
                decoded(field_at(batch, place)).cast(field.type)
                for place, field in zip(places, wanted, strict=True)
            ]
            if not columns:
                return pa.repeat(matches(pa.RecordBatch.from_pylist([{"a": None}]))[0], len(batch))
            return matches(pa.RecordBatch.from_arrays(columns, schema=wanted))

        return cls(tuple(dict.fromkeys(place[0] for place in places)), mask)


def field_path(stream: pa.Schema, name: str) -> tuple[str, ...] | None:
    """The path to a column, or to a field of a struct (`address.city`); None if there is none."""
    if stream.get_field_index(name) >= 0:
        return (name,)
    path = tuple(name.split("."))
    kind: pa.DataType = pa.struct(list(stream))
    for part in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return path


def field_at(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """The values of a column, or of a field of a struct."""
    array = batch.column(path[0])
    for part in path[1:]:
        array = pc.struct_field(decoded(array), part)
    return array


def decoded(array: pa.Array) -> pa.Array:
    """The values, decoded from dictionaries, run lengths, extension types and views."""
    while True:
        kind = array.type
        if pa.types.is_dictionary(kind):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(kind):
            array = pc.run_end_decode(array)
        elif isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_string_view(kind):
            array = array.cast(pa.large_string())
        elif pa.types.is_binary_view(kind):
            array = array.cast(pa.large_binary())
        else:
            return array


def _values(
    fields: Iterable[pa.Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[tuple[str, ...], PrimitiveType]]]:
    """The single values of a row, by the names that a filter uses: paths and Iceberg types."""
    for field in fields:
        path, kind = (*above, field.name), plain(field.type)
        if pa.types.is_struct(kind):
            yield from _values(list(kind), path)
            continue
        stored = new_type(kind, format_version=3, downcast_ns=False)
        if stored is not None:
            yield ".".join(path), (path, stored)


def _label(option: str) -> str:
    return "the filter" if option == "where" else f"the filter {option}"
