"""Opens a database as an Arrow stream in this process, with the reader that its address names."""

from __future__ import annotations

import pyarrow as pa

from icestream.errors import MissingExtraError
from icestream.memory.budget import format_bytes, over_limit
from icestream.pipeline.inputs.adbc_source import adbc_schema, open_adbc
from icestream.pipeline.inputs.duckdb_source import duckdb_schema, open_duckdb
from icestream.pipeline.inputs.postgres_source import open_postgres, postgres_schema, reads_by_adbc
from icestream.pipeline.inputs.sqlite_source import open_sqlite, sqlite_schema
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.write.rules.duckdb_query import LEAST_DUCKDB_BYTES
from icestream.write.sources.arrow_source import ArrowSource

_DUCKDB_PARTS = 4  # DuckDB gets a quarter of the load's limit, or the least with which it works


def needs_jdbc(source: SourceSpec) -> bool:
    """Whether only Spark reads the database, with the jar of its driver."""
    driver = source.address.driver
    return driver == "jdbc" or (driver == "postgres" and not reads_by_adbc(source))


def is_embedded(source: SourceSpec) -> bool:
    """Whether the database is a file that this process reads."""
    return source.kind == "jdbc" and source.address.driver in ("sqlite", "duckdb")


def database_bytes(source: SourceSpec, memory_bytes: int) -> int:
    """The part of a load's limit that the database's own engine takes in this process.

    Raises:
        MemoryBudgetError: If it is too small.
    """
    if source.kind != "jdbc" or source.address.driver != "duckdb":
        return 0
    share = max(memory_bytes // _DUCKDB_PARTS, LEAST_DUCKDB_BYTES)
    if share > memory_bytes // 2:
        raise over_limit(
            f"reading {source.text} takes {format_bytes(share)} for DuckDB, at most half of the "
            "memory",
            needed_bytes=2 * LEAST_DUCKDB_BYTES,
            limit_bytes=memory_bytes,
            otherwise="export the table to Parquet",
        )
    return share


def database_schema(source: SourceSpec, memory_bytes: int) -> pa.Schema:
    """The columns of a table or a query.

    Raises:
        MissingExtraError: If the package that reads the database is not installed.
        SourceError: If the database can't be opened, or the query is not valid.
    """
    _check(source)
    driver = source.address.driver
    if driver == "sqlite":
        return sqlite_schema(source)
    if driver == "duckdb":
        return duckdb_schema(source, database_bytes(source, memory_bytes))
    return adbc_schema(source) if driver == "adbc" else postgres_schema(source)


def open_database(source: SourceSpec, memory_bytes: int) -> ArrowSource:
    """Stream the rows of a table or a query.

    Args:
        source: The database.
        memory_bytes: The limit of the load; on Spark, of the task.

    Raises:
        MissingExtraError: If the package that reads the database is not installed.
        SourceError: If the database can't be opened, or the query is not valid.

    Memory: a few batches; DuckDB takes a quarter of the limit.
    """
    _check(source)
    driver = source.address.driver
    if driver == "sqlite":
        return open_sqlite(source)
    if driver == "duckdb":
        return open_duckdb(source, database_bytes(source, memory_bytes))
    return open_adbc(source) if driver == "adbc" else open_postgres(source)


def _check(source: SourceSpec) -> None:
    if needs_jdbc(source):
        raise MissingExtraError(
            f"{source.shown_address} can't be read by the local engine: for PostgreSQL, pip "
            "install 'icestream[postgres]'; for others, write the address as adbc:DRIVER:URI with "
            "the driver's package adbc-driver-DRIVER, or load with engine='spark' and the JDBC "
            "driver's jar as option 'jar'"
        )
