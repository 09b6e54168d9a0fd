"""Reads PostgreSQL as an Arrow stream with ADBC, without Java."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.compute as pc

from icestream.catalogs.redaction import redact, shown_cause
from icestream.errors import SourceError
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.rules.duckdb_query import quoted
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.sources.file_columns import plain_type

_DECIMAL = pa.decimal128(38, 18)  # Spark's type for a number without precision
_BATCH_BYTES = 1 << 22
_CONNECT_SECONDS = 10


def reads_by_adbc(source: SourceSpec) -> bool:
    """Whether the database is PostgreSQL, and ADBC's driver for it is installed."""
    is_postgres = source.address.driver == "postgres"
    return is_postgres and find_spec("adbc_driver_postgresql") is not None


def postgres_schema(source: SourceSpec) -> pa.Schema:
    """The columns of a table or a query. The query is not run.

    Raises:
        SourceError: If the server can't be reached, or the query is not valid.
    """
    with _cursor(source) as cursor:
        scales = _scales(cursor, source)
        return _plain(cursor.adbc_execute_schema(_query(cursor, source)), scales)


def open_postgres(source: SourceSpec) -> ArrowSource:
    """Stream the rows of a table or a query.

    The types are those of Spark's JDBC reader. Numeric columns are decimals of their precision, or
    decimal(38, 18) without one. UUIDs, money and types that Arrow lacks (inet, xml, ...) are text.

    Raises:
        SourceError: If the server can't be reached, or the query is not valid.

    Memory: a few batches of 4 MB.
    """
    with ExitStack() as stack:
        cursor = stack.enter_context(_cursor(source))
        scales = _scales(cursor, source)
        cursor.adbc_statement.set_options(
            **{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)}
        )
        cursor.execute(_query(cursor, source))
        reader = cursor.fetch_record_batch()
        schema = _plain(reader.schema, scales)
        return ArrowSource(schema, _batches(reader, schema, source), stack.pop_all().close)
    raise AssertionError("not reached")


@contextmanager
def _cursor(source: SourceSpec) -> Iterator[Any]:
    dbapi: Any = import_module("adbc_driver_postgresql.dbapi")
    try:
        with dbapi.connect(_uri(source)) as connection, connection.cursor() as cursor:
            yield cursor
    except dbapi.Error as error:
        raise _failed(source, error) from shown_cause(error, _secrets(source))


def _query(cursor: Any, source: SourceSpec) -> str:
    """The query to run. Columns that would arrive in the server's own format are cast to text."""
    query = source.query or f"SELECT * FROM {quoted_name(str(source.table))}"
    schema: pa.Schema = cursor.adbc_execute_schema(query)
    columns = [(quoted(each.name), _cast_of(each)) for each in schema]
    if not any(cast for _, cast in columns):
        return query
    casts = ", ".join(f"{name}{cast} AS {name}" for name, cast in columns)
    return f"SELECT {casts} FROM ({query.rstrip().rstrip(';')}\n) AS source"


def _cast_of(field: pa.Field) -> str:
    """A cast to text, if the column needs one."""
    kind = field.type
    suffix = "::text"
    if pa.types.is_list(kind):
        kind, suffix = kind.value_type, "::text[]"
    is_money = (field.metadata or {}).get(b"POSTGRESQL:type") == b"money"
    name = getattr(kind, "extension_name", "")
    is_raw = name == "arrow.opaque" and kind.type_name != "numeric"
    return suffix if is_raw or is_money or name == "arrow.uuid" else ""


def _plain(schema: pa.Schema, scales: Mapping[str, tuple[int, int]]) -> pa.Schema:
    return pa.schema([pa.field(each.name, _kind(each, scales)) for each in schema])


def _batches(
    reader: pa.RecordBatchReader, schema: pa.Schema, source: SourceSpec
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader:
            columns = [_cast(batch.column(i), field.type) for i, field in enumerate(schema)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            del batch, columns
    except (pa.ArrowException, OSError) as error:
        raise _failed(source, error) from shown_cause(error, _secrets(source))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_decimal(kind):
        whole = pc.if_else(pc.equal(column, "nan"), None, column)
        return whole.cast(kind)
    return column.cast(kind)


def _kind(field: pa.Field, scales: Mapping[str, tuple[int, int]]) -> pa.DataType:
    name = (field.metadata or {}).get(b"ADBC:postgresql:typname", b"")
    is_number = name == b"numeric" or getattr(field.type, "type_name", "") == "numeric"
    if is_number:
        return pa.decimal128(*scales[field.name]) if field.name in scales else _DECIMAL
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    return plain_type(kind)


def _scales(cursor: Any, source: SourceSpec) -> dict[str, tuple[int, int]]:
    """Precision and scale of a table's numeric columns, if they have any."""
    if source.table is None:
        return {}
    cursor.execute(
        "SELECT attname, atttypmod FROM pg_attribute WHERE attrelid = "
        f"'{quoted_name(str(source.table)).replace(chr(39), chr(39) * 2)}'::regclass "
        "AND atttypid = 'numeric'::regtype AND atttypmod > 0 AND NOT attisdropped"
    )
    scales = {}
    for name, modifier in cursor.fetchall():
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        if precision <= 38 and scale <= precision:
            scales[str(name)] = (precision, scale)
    return scales


def quoted_name(table: str) -> str:
    """The name in quotes, so that PostgreSQL keeps its case and accepts keywords."""
    return ".".join(quoted(part) for part in table.split("."))


def _uri(source: SourceSpec) -> str:
    """The address in the form that libpq expects."""
    parts = urlsplit(re.sub(r"^jdbc:", "", source.url or ""))
    user, password = source.options.get("user"), source.options.get("password")
    netloc = parts.netloc
    if user:
        access = quote(str(user), safe="")
        if password:
            access += ":" + quote(str(password), safe="")
        netloc = f"{access}@{netloc.rpartition('@')[2]}"
    query = parts.query
    if "connect_timeout=" not in query:
        query += f"{'&' if query else ''}connect_timeout={_CONNECT_SECONDS}"
    return urlunsplit(("postgresql", netloc, parts.path, query, ""))


def _failed(source: SourceSpec, error: Exception) -> SourceError:
    text = redact(" ".join(str(error).split()), _secrets(source))
    return SourceError(f"{source.text} can't be read: {text}")


def _secrets(source: SourceSpec) -> dict[str, str]:
    """Values that an error may contain and that must be redacted."""
    options = {key: str(value) for key, value in source.options.items()}
    return {**options, "given": source.url or "", "uri": _uri(source)}
