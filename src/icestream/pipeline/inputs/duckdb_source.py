"""Reads DuckDB files as an Arrow stream, with DuckDB inside a memory limit of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from icestream.errors import MissingExtraError, SourceError
from icestream.memory.budget import over_limit
from icestream.memory.scratch_folder import ScratchFolder
from icestream.pipeline.inputs.postgres_source import quoted_name
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.rules.duckdb_query import arrow_reader, like_spark
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.sources.batch_columns import fit_batch
from icestream.write.sources.file_columns import plain_schema

_SQLITE = b"SQLite format 3\0"


def duckdb_schema(source: SourceSpec, memory_bytes: int) -> pa.Schema:
    """The columns of a table or a query.

    Raises:
        MissingExtraError: If DuckDB is not installed.
        SourceError: If the file can't be read, or the query is not valid.
    """
    with _connection(source, memory_bytes) as connection:
        return plain_schema(arrow_reader(_rows(connection, source).limit(0)).schema)


def open_duckdb(source: SourceSpec, memory_bytes: int) -> ArrowSource:
    """Stream the rows of a table or a query.

    Args:
        source: The database.
        memory_bytes: Memory limit of DuckDB, which spills to disk.

    Raises:
        MissingExtraError: If DuckDB is not installed.
        SourceError: If the file can't be read, or the query is not valid.

    Memory: the limit, and a batch.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(_connection(source, memory_bytes))
        reader = arrow_reader(_rows(connection, source))
        schema = plain_schema(reader.schema)
        batches = _batches(reader, schema, source, memory_bytes)
        return ArrowSource(schema, batches, stack.pop_all().close)
    raise AssertionError("not reached")


@contextmanager
def _connection(source: SourceSpec, memory_bytes: int) -> Iterator[Any]:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            f"{source.text} needs DuckDB: pip install 'icestream[duckdb]'"
        ) from error
    path = Path(source.address.path)
    if not path.is_file():
        raise SourceError(f"no file is at {str(path)!r}: check the path of the database")
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            raise SourceError(
                f"{str(path)!r} is a SQLite file: write the address as 'sqlite:///PATH?table=NAME'"
            )
    with ScratchFolder("duckdb") as folder, _errors(source, memory_bytes):
        settings: dict[str, Any] = {
            "memory_limit": f"{memory_bytes}B",
            "temp_directory": str(folder),
            "threads": 1,
            "autoinstall_known_extensions": False,
        }
        connection = duckdb.connect(str(path), read_only=True, config=settings)
        try:
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
        finally:
            connection.close()


def _rows(connection: Any, source: SourceSpec) -> Any:
    query = source.query or f"SELECT * FROM {quoted_name(str(source.table))}"
    return like_spark(connection.sql(query))


def _batches(
    reader: pa.RecordBatchReader, schema: pa.Schema, source: SourceSpec, memory_bytes: int
) -> Iterator[pa.RecordBatch]:
    with _errors(source, memory_bytes):
        for batch in reader:
            yield fit_batch(batch, schema)
            del batch


@contextmanager
def _errors(source: SourceSpec, memory_bytes: int) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())
        if "Out of Memory" in text:
            raise over_limit(
                f"reading {source.text} needs more than DuckDB's part of the memory",
                needed_bytes=8 * memory_bytes,
                limit_bytes=4 * memory_bytes,
                otherwise="export the table to Parquet",
            ) from error
        advice = ". Close the program that has it open for writing" if "set lock" in text else ""
        raise SourceError(f"{source.text} can't be read: {text}{advice}") from error
