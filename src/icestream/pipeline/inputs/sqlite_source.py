"""Reads SQLite files as an Arrow stream, with Python's own driver.

SQLite checks no types: a column may hold any value. A column has the type that its table declares
if the first rows fit it, else the type of their values. A later value that does not fit is an
error, never a loss.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from icestream.errors import SourceError
from icestream.pipeline.inputs.postgres_source import quoted_name
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.rules.duckdb_query import quoted
from icestream.write.sources.arrow_source import ArrowSource

_SAMPLE_ROWS = 1000
_SAMPLE_BYTES = 4 << 20
_MOST_ROWS = 16_384
_BATCH_BYTES = 1 << 20  # Python's values take several times as much
_FIXED_BYTES = 8
_VIEW = "temp.icestream_source"
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_US, _UTC = pa.timestamp("us"), pa.timestamp("us", "UTC")
# The types of declarations, by SQLite's rules of affinity; the first that matches counts.
_DECLARED: tuple[tuple[str, tuple[pa.DataType, ...]], ...] = (
    (r"BOOL", (pa.bool_(),)),
    (r"DATETIME|TIMESTAMP", (_US, _UTC)),
    (r"DATE$", (pa.date32(),)),
    (r".*INT", (pa.int64(),)),
    (r".*(CHAR|CLOB|TEXT)|JSON|UUID", (pa.string(),)),
    (r".*BLOB", (pa.binary(),)),
    (r".*(REAL|FLOA|DOUB)", (pa.float64(),)),
)


def sqlite_schema(source: SourceSpec) -> pa.Schema:
    """The columns of a table or a query, from declarations and the first rows.

    Raises:
        SourceError: If the file can't be read, or the query is not valid.
    """
    with _view(source) as connection, _errors(source):
        return _schema(connection)


def open_sqlite(source: SourceSpec) -> ArrowSource:
    """Stream the rows of a table or a query, as of one moment.

    Raises:
        SourceError: If the file can't be read, or the query is not valid.

    Memory: a batch of about 1 MB, and Python's values of its rows.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(_view(source))
        with _errors(source):
            schema = _schema(connection)
        batches = _batches(connection, schema, source)
        return ArrowSource(schema, batches, stack.pop_all().close)
    raise AssertionError("not reached")


@contextmanager
def _view(source: SourceSpec) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, with the query as a view, inside one transaction."""
    path = Path(source.address.path)
    if not path.is_file():
        raise SourceError(f"no file is at {str(path)!r}: check the path of the database")
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro",
        uri=True,
        check_same_thread=False,
        isolation_level=None,
    )
    try:
        with _errors(source):
            connection.execute("BEGIN")
            query = source.query
            if query is None:
                query = f"SELECT * FROM {_table(connection, str(source.table), source)}"
            connection.execute(f"CREATE TEMP VIEW icestream_source AS {query.rstrip().rstrip(';')}")
        yield connection
    finally:
        connection.close()


@contextmanager
def _errors(source: SourceSpec) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        advice = ""
        if "not a database" in text:
            advice = ": check the path; a DuckDB file has an address such as 'duckdb:///x.duckdb?table=t'"
        elif "locked" in text:
            advice = ": wait until other programs have written to it"
        elif "decode" in text:
            advice = ": cast the column with a query, such as SELECT CAST(name AS BLOB) AS name"
        raise SourceError(f"{source.text} can't be read: {text}{advice}") from error


def _table(connection: sqlite3.Connection, name: str, source: SourceSpec) -> str:
    """The table's name in quotes."""
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite^_%' ESCAPE '^' ORDER BY name"
    )
    names = [str(row[0]) for row in rows]
    if name.lower() in map(str.lower, names):
        return quoted(name)
    if "." in name:
        return quoted_name(name)
    known = ", ".join(names[:20]) or "no tables"
    raise SourceError(f"{source.shown_address} has no table {name!r}: it has {known}")


def _schema(connection: sqlite3.Connection) -> pa.Schema:
    declared = connection.execute("PRAGMA temp.table_info(icestream_source)").fetchall()
    cursor = connection.execute(f"SELECT * FROM {_VIEW} LIMIT {_SAMPLE_ROWS}")
    sample = next(_pieces(cursor, _SAMPLE_ROWS, _SAMPLE_BYTES), [])
    cursor.close()
    columns = list(zip(*sample, strict=True)) if sample else [()] * len(declared)
    return pa.schema(
        [
            (str(name), _type_of(str(kind or ""), values))
            for (_, name, kind, *_), values in zip(declared, columns, strict=True)
        ]
    )


def _type_of(declared: str, values: Sequence[Any]) -> pa.DataType:
    """The type of a column, from its declaration and its first values."""
    for kind in _declared_types(declared.upper().strip()):
        try:
            _array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
            continue
        return kind
    seen = {type(value) for value in values if value is not None}
    if seen == {int}:
        return pa.int64()
    if seen and seen <= {int, float}:
        return pa.float64()
    return pa.binary() if seen == {bytes} else pa.string()


def _declared_types(declared: str) -> tuple[pa.DataType, ...]:
    if match := _DECIMAL.match(declared):
        precision, scale = int(match[1]), int(match[2] or 0)
        return (pa.decimal128(precision, scale),) if 0 < precision <= 38 and scale <= 38 else ()
    return next((kinds for name, kinds in _DECLARED if re.match(name, declared)), ())


def _batches(
    connection: sqlite3.Connection, schema: pa.Schema, source: SourceSpec
) -> Iterator[pa.RecordBatch]:
    with _errors(source):
        cursor = connection.execute(f"SELECT * FROM {_VIEW}")
        count = 0
        for rows in _pieces(cursor, _MOST_ROWS, _BATCH_BYTES):
            columns = list(zip(*rows, strict=True))
            arrays = [
                _column(values, field, count, source)
                for values, field in zip(columns, schema, strict=True)
            ]
            count += len(rows)
            del rows, columns
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            yield batch
            del batch, arrays


def _pieces(
    cursor: sqlite3.Cursor, most_rows: int, most_bytes: int
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows in lists. A list ends with the row that reaches a limit."""
    rows, size = list[tuple[Any, ...]](), 0
    for row in cursor:
        rows.append(row)
        size += _FIXED_BYTES * len(row)
        for value in row:
            if isinstance(value, (str, bytes)):
                size += len(value)
        if size >= most_bytes or len(rows) >= most_rows:
            piece, rows, size = rows, [], 0
            yield piece
            del piece
    if rows:
        yield rows


def _column(values: Sequence[Any], field: pa.Field, before: int, source: SourceSpec) -> pa.Array:
    """The values as an array.

    Raises:
        SourceError: If a value does not fit.
    """
    try:
        return _array(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        number, value = next(
            ((n, value) for n, value in enumerate(values, 1) if not _fits(value, field.type)),
            (1, values[0]),
        )
        raise SourceError(
            f"{source.text}, row {before + number}: column {field.name!r} has {str(value)[:50]!r}, "
            f"and the values before it are {field.type}: give a query that casts the column, such "
            f"as SELECT CAST({field.name} AS TEXT) AS {field.name}"
        ) from error


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError):
        return False
    return True


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    types = pa.types
    if types.is_boolean(kind):
        if any(value not in (0, 1, None) for value in values):
            raise TypeError("not a truth value")
        return pa.array([None if value is None else bool(value) for value in values], kind)
    if types.is_integer(kind) and any(
        isinstance(value, float) and not value.is_integer() for value in values
    ):
        raise TypeError("not a whole number")  # Arrow would cut the fraction off
    if types.is_decimal(kind):
        unit = Decimal(1).scaleb(-kind.scale)
        return pa.array([_decimal(value, unit) for value in values], kind)
    if types.is_date(kind) or types.is_timestamp(kind):
        if any(not isinstance(value, str | None) for value in values):
            raise TypeError("not text")
        return pa.array(values, pa.string()).cast(kind)
    if types.is_string(kind):
        if any(isinstance(value, bytes) for value in values):
            raise TypeError("not text")
        return pa.array([None if value is None else str(value) for value in values], kind)
    return pa.array(values, kind)


def _decimal(value: Any, unit: Decimal) -> Decimal | None:
    """The value; a float is rounded, because SQLite stores decimals as floats."""
    if value is None:
        return None
    number = Decimal(str(value))
    return number.quantize(unit) if isinstance(value, float) else number
