"""Masks and transforms: what a scan makes of each batch before it delivers it.

Masks come first, so a transform never sees the values that they hide.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from icestream.errors import (
    IcestreamError,
    InvalidArgumentError,
    MissingExtraError,
    SchemaMismatchError,
    UnknownColumnError,
)
from icestream.memory.budget import Lease, MemoryBudget, format_bytes, over_limit
from icestream.read.project.origin import delivered_schema
from icestream.read.split import ReadContext, Reshape

Mask = Literal["hash", "null"] | Callable[[pa.Array], pa.Array]
Transform = str | Callable[[pa.RecordBatch], Any]

VIEW = "batch"
_HASHED_ROWS = 8_192
_LEAST_QUERY_BYTES = 16 << 20  # With less, DuckDB can't sort.


def reshaping(
    context: ReadContext,
    schema: Schema,
    specs: Iterable[PartitionSpec],
    *,
    mask: Mapping[str, Mask] | None,
    transform: Transform | None,
) -> ReadContext:
    """The context of a scan with masks and a transform, checked against the table.

    Args:
        context: The scan without them.
        schema: All columns of the table.
        specs: All partition specs of the table.
        mask: What to deliver in place of the values of a column.
        transform: SQL over the view `batch`, or a function of a batch.

    Raises:
        InvalidArgumentError: If they do not fit the table, or would not hide a value.
    """
    if not mask and transform is None:
        return context
    masks = _checked_masks(mask or {}, schema, context)
    _refuse_leaks({field.field_id: name for field, name in masks}, schema, specs, context)
    given = delivered_schema(context)
    kept = tuple((field.name, (mask or {})[name]) for field, name in masks)
    kept = tuple((name, each) for name, each in kept if name in given.names)
    draft = Reshape(kept, transform, given)
    reshaper = Reshaper(draft, _LEAST_QUERY_BYTES)
    try:
        empty = pa.RecordBatch.from_pylist([], schema=given)
        shape = reshaper.shape(empty)
    finally:
        reshaper.close()
    return replace(context, reshape=replace(draft, schema=shape))


def open_reshaper(context: ReadContext, budget: MemoryBudget) -> Reshaper | None:
    """Prepare the masks and the transform of a scan; None if it has none.

    Raises:
        MemoryBudgetError: If the limit is too small for DuckDB.
        MissingExtraError: If DuckDB is needed and not installed.
    """
    if context.reshape is None:
        return None
    if not isinstance(context.reshape.transform, str):
        return Reshaper(context.reshape)
    needed = 2 * _LEAST_QUERY_BYTES
    if budget.limit_bytes < needed:
        raise over_limit(
            f"a SQL transform needs {format_bytes(needed)}, half of it for DuckDB",
            needed_bytes=needed,
            limit_bytes=budget.limit_bytes,
            otherwise="transform with a function",
        )
    query_bytes = max(_LEAST_QUERY_BYTES, budget.limit_bytes // 4)
    return Reshaper(context.reshape, query_bytes, budget.force(query_bytes))


class Reshaper:
    """Applies masks and a transform. Several threads may use it.

    Args:
        reshape: What to apply.
        query_bytes: Memory limit of DuckDB, if the transform is SQL.
        lease: The lease for these bytes.

    Memory: `query_bytes`, and the results, which the caller counts.
    """

    def __init__(self, reshape: Reshape, query_bytes: int = 0, lease: Lease | None = None) -> None:
        self._reshape = reshape
        self._lease = lease
        self._masks = [(name, _mask(each)) for name, each in reshape.masks]
        self._query = None
        if isinstance(reshape.transform, str):
            self._query = _Query(reshape.transform, query_bytes)

    @property
    def hides_values(self) -> bool:
        """Whether messages must not show values of the rows."""
        return bool(self._masks)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to deliver in place of a batch."""
        masked = self._masked(batch)
        expected = self._reshape.schema
        if self._reshape.transform is None:
            if masked.schema.types != expected.types:
                raise _changed(f"{masked.schema.types}", f"{expected.types}", "a mask")
            return masked
        result = self._transformed(masked)
        if result.schema.names != expected.names:
            raise _changed(f"columns {', '.join(result.schema.names)}", ", ".join(expected.names))
        for field, wanted in zip(result.schema, expected, strict=True):
            if field.type != wanted.type and not pa.types.is_null(field.type):
                raise _changed(f"column {field.name!r} as {field.type}", str(wanted.type))
        # Only nulls without a type are cast.
        return _one_batch(result.cast(expected))

    def shape(self, empty: pa.RecordBatch) -> pa.Schema:
        """The columns of the results, from a batch without rows."""
        masked = self._masked(empty)
        if self._reshape.transform is None:
            return masked.schema
        try:
            result = self._transformed(masked)
        except (InvalidArgumentError, MissingExtraError):
            raise
        except Exception as error:
            raise InvalidArgumentError(
                f"the transform failed for a batch without rows, which shows its columns: {error}. "
                "It must work for such a batch, too"
            ) from error
        if not result.schema:
            raise InvalidArgumentError("the transform returns no columns: return at least one")
        return pa.schema([pa.field(each.name, each.type) for each in result.schema])

    def close(self) -> None:
        """Close DuckDB, and release its bytes."""
        if self._query is not None:
            self._query.close()
        if self._lease is not None:
            self._lease.release()

    def _masked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, mask in self._masks:
            place = batch.schema.get_field_index(name)
            values = mask(batch.column(place))
            if not isinstance(values, pa.Array) or len(values) != batch.num_rows:
                raise InvalidArgumentError(
                    f"the mask of column {name!r} must return a pa.Array of {batch.num_rows} "
                    f"values, not {_described(values)}"
                )
            field = batch.schema.field(place).with_type(values.type).with_nullable(True)
            batch = batch.set_column(place, field, values)
        return batch

    def _transformed(self, batch: pa.RecordBatch) -> pa.Table:
        transform = self._reshape.transform
        if self._query is not None:
            return self._query(batch)
        result = transform(batch)
        if isinstance(result, pa.RecordBatch):
            return pa.Table.from_batches([result]).replace_schema_metadata()
        if result is None or inspect.isgenerator(result):
            raise InvalidArgumentError(
                f"the transform returns {_described(result)}: return a RecordBatch, a Table or a "
                "DataFrame"
            )
        return pa.table(result).replace_schema_metadata()


class _Query:
    """A SQL query over one batch at a time. DuckDB runs it without access to files or variables."""

    def __init__(self, sql: str, memory_bytes: int) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtraError(
                "a SQL transform needs DuckDB: pip install 'icestream[duckdb]', or transform with "
                "a function"
            ) from error
        self._sql = sql
        self._memory_bytes = memory_bytes
        self._failure: type[Exception] = duckdb.Error
        self._connection = duckdb.connect(":memory:")
        for setting, value in (
            ("memory_limit", f"{memory_bytes}B"),
            ("threads", 1),  # The threads of the scan run it.
            ("temp_directory", ""),
            ("TimeZone", "UTC"),
            ("python_enable_replacements", False),
            ("enable_external_access", False),
        ):
            self._connection.execute(f"SET GLOBAL {setting} = {value!r}")
        self._check()

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        with self._connection.cursor() as cursor:
            try:
                cursor.register(VIEW, pa.Table.from_batches([batch]))
                return cursor.sql(self._sql).to_arrow_table()
            except self._failure as error:
                raise self._invalid(error) from error

    def close(self) -> None:
        self._connection.close()

    def _check(self) -> None:
        try:
            kinds = [each.type.name for each in self._connection.extract_statements(self._sql)]
        except self._failure as error:
            self.close()
            raise self._invalid(error) from error
        if kinds != ["SELECT"]:
            self.close()
            raise InvalidArgumentError(
                f"the transform is not one SELECT: write one, such as 'SELECT * FROM {VIEW}'"
            )

    def _invalid(self, error: Exception) -> IcestreamError:
        text = " ".join(str(error).split())
        if "Out of Memory" in text:
            return over_limit(
                f"the transform needs more than DuckDB's quarter of the memory ({text})",
                needed_bytes=8 * self._memory_bytes,
                limit_bytes=4 * self._memory_bytes,
                otherwise="transform with a function",
            )
        return InvalidArgumentError(
            f"the transform failed: {text}. DuckDB runs it over the view {VIEW}, which has the "
            "columns of the scan"
        )


def _mask(mask: Any) -> Callable[[pa.Array], Any]:
    if mask == "hash":
        return _hashed
    if mask == "null":
        return lambda values: pa.nulls(len(values), values.type)
    function: Callable[[pa.Array], Any] = mask
    return function


def _hashed(values: pa.Array) -> pa.Array:
    """SHA-256 of each value as text, in hexadecimal. Nulls stay null."""
    # Objects of Python are large, so only a few rows become objects at a time.
    pieces = [values.slice(n, _HASHED_ROWS) for n in range(0, len(values), _HASHED_ROWS)]
    return pa.concat_arrays([_digests(piece) for piece in pieces or [values]])


def _digests(values: pa.Array) -> pa.Array:
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    kind = values.type
    if not (pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)):
        values = pc.cast(values, pa.large_string())
    coded = values.dictionary_encode()  # Columns often repeat values.
    texts = (
        value.encode() if isinstance(value, str) else value
        for value in coded.dictionary.to_pylist()
    )
    digests = [hashlib.sha256(text).hexdigest() for text in texts]
    return pa.array(digests, pa.large_string()).take(coded.indices)


def _checked_masks(
    mask: Mapping[str, Mask], schema: Schema, context: ReadContext
) -> list[tuple[NestedField, str]]:
    """The columns with a mask, each with the name that the caller used."""
    if not isinstance(mask, Mapping):
        raise InvalidArgumentError(
            f"mask is {mask!r}: give a dictionary such as {{'email': 'hash'}}"
        )
    checked = []
    names = {
        each.name if context.case_sensitive else each.name.lower(): each for each in schema.fields
    }
    for name, each in mask.items():
        field = names.get(name if context.case_sensitive else str(name).lower())
        if field is None:
            raise UnknownColumnError(
                f"mask has {name!r}: the top-level columns are {', '.join(schema.as_arrow().names)}"
            )
        if each not in ("hash", "null") and not callable(each):
            raise InvalidArgumentError(
                f"mask[{name!r}] is {each!r}: give 'hash', 'null' or a function of a pa.Array"
            )
        if each == "hash" and not field.field_type.is_primitive:
            raise InvalidArgumentError(
                f"mask[{name!r}] is 'hash', and the column is a {field.field_type}: only values "
                "without parts have a hash. Use 'null' or a function"
            )
        checked.append((field, name))
    return checked


def _refuse_leaks(
    masked: Mapping[int, str], schema: Schema, specs: Iterable[PartitionSpec], context: ReadContext
) -> None:
    """Refuse filters and metadata columns that would show values of masked columns."""
    parts = {part: name for field, name in masked.items() for part in _ids(schema, field)}
    bound = bind(context.read_schema, context.row_filter, context.case_sensitive)
    for field_id in extract_field_ids(bound):
        if field_id in parts:
            raise InvalidArgumentError(
                f"the filter compares column {parts[field_id]!r}, which mask hides: the rows that "
                "match would show its values. Filter by another column"
            )
    shown = [name for name in context.metadata_columns if name in ("_file", "_partition")]
    sources = {field.source_id for spec in specs for field in spec.fields}
    if shown and (hidden := sources & parts.keys()):
        raise InvalidArgumentError(
            f"the table is partitioned by column {parts[min(hidden)]!r}, which mask hides, and "
            f"{shown[0]} would show its values: leave {shown[0]} out of metadata_columns"
        )


def _ids(schema: Schema, field_id: int) -> Collection[int]:
    """The field and all fields inside it."""
    (field,) = (each for each in schema.fields if each.field_id == field_id)
    return Schema(field).field_ids


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    if not table.num_columns:
        return pa.RecordBatch.from_arrays([], schema=table.schema)
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=table.schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _changed(returned: str, expected: str, what: str = "the transform") -> SchemaMismatchError:
    difference = f"{what} returned {returned}, and for a batch without rows {expected}"
    return SchemaMismatchError(
        f"{difference}: return the same columns and types for every batch",
        differences=(difference,),
    )


def _described(value: object) -> str:
    if isinstance(value, pa.Array):
        return f"{len(value)} values"
    return "nothing" if value is None else f"a {type(value).__name__}"
