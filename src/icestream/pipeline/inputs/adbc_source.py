"""Reads any database that has an ADBC driver as an Arrow stream, without Java."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from inspect import signature
from typing import Any

import pyarrow as pa

from icestream.catalogs.redaction import redact, shown_cause
from icestream.errors import InvalidArgumentError, MissingExtraError, SourceError
from icestream.pipeline.inputs.postgres_source import quoted_name
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.sources.batch_columns import fit_batch
from icestream.write.sources.file_columns import plain_schema

_PLAIN_NAME = re.compile(r"\w+(\.\w+)*")
_ACCESS = {"user": "username"}  # ADBC's names of our options


def adbc_schema(source: SourceSpec) -> pa.Schema:
    """The columns of a table or a query. A driver that can't tell them runs the query.

    Raises:
        MissingExtraError: If the driver is not installed.
        SourceError: If the database can't be reached, or the query is not valid.
    """
    with _cursor(source) as (cursor, not_supported):
        try:
            return plain_schema(cursor.adbc_execute_schema(_query(source)))
        except not_supported:
            cursor.execute(_query(source))
            return plain_schema(cursor.fetch_record_batch().schema)


def open_adbc(source: SourceSpec) -> ArrowSource:
    """Stream the rows of a table or a query.

    Raises:
        MissingExtraError: If the driver is not installed.
        SourceError: If the database can't be reached, or the query is not valid.

    Memory: the batches that the driver holds.
    """
    with ExitStack() as stack:
        cursor, _ = stack.enter_context(_cursor(source))
        cursor.execute(_query(source))
        reader = cursor.fetch_record_batch()
        schema = plain_schema(reader.schema)
        return ArrowSource(schema, _batches(reader, schema, source), stack.pop_all().close)
    raise AssertionError("not reached")


@contextmanager
def _cursor(source: SourceSpec) -> Iterator[tuple[Any, type[Exception]]]:
    """A cursor, and the error of functions that its driver lacks."""
    address = source.address
    try:
        dbapi: Any = import_module(f"adbc_driver_{address.name}.dbapi")
    except ImportError as error:
        raise MissingExtraError(
            f"{source.shown_address} needs the ADBC driver {address.name!r}: pip install "
            f"adbc-driver-{address.name.replace('_', '-')}"
        ) from error
    if source.options and "db_kwargs" not in signature(dbapi.connect).parameters:
        raise InvalidArgumentError(
            f"the ADBC driver {address.name!r} takes no options: leave out "
            f"{', '.join(map(repr, source.options))}, or write them in the address"
        )
    options = {_ACCESS.get(key, key): str(value) for key, value in source.options.items()}
    try:
        settings = {"db_kwargs": options} if options else {}
        given = (address.uri,) if address.uri else ()
        with dbapi.connect(*given, **settings) as connection, connection.cursor() as cursor:
            yield cursor, dbapi.NotSupportedError
    except dbapi.Error as error:
        raise _failed(source, error) from shown_cause(error, _secrets(source))


def _query(source: SourceSpec) -> str:
    """The query to run. A plain name is not quoted, so that the database chooses its case."""
    if source.query:
        return source.query
    table = str(source.table)
    return f"SELECT * FROM {table if _PLAIN_NAME.fullmatch(table) else quoted_name(table)}"


def _batches(
    reader: pa.RecordBatchReader, schema: pa.Schema, source: SourceSpec
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in reader:
            yield fit_batch(batch, schema)
            del batch
    except (pa.ArrowException, OSError) as error:
        raise _failed(source, error) from shown_cause(error, _secrets(source))


def _failed(source: SourceSpec, error: Exception) -> SourceError:
    text = redact(" ".join(str(error).split()), _secrets(source))
    return SourceError(f"{source.text} can't be read: {text}")


def _secrets(source: SourceSpec) -> dict[str, str]:
    options = {key: str(value) for key, value in source.options.items()}
    return {**options, "given": source.url or "", "uri": source.address.uri}
