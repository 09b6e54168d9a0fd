"""SQL over a stream, run by DuckDB in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icestream.errors import IcestreamError, InvalidArgumentError, MissingExtraError
from icestream.memory.budget import format_bytes, over_limit
from icestream.memory.scratch_folder import ScratchFolder
from icestream.write.sources.arrow_source import ArrowSource

VIEW = "source"
_BATCH_ROWS = 16_384
LEAST_DUCKDB_BYTES = 16 << 20  # with half of that, DuckDB can't sort


def duckdb_module(
    reason: str = "a SQL transform on the local engine",
    otherwise: str = (
        "let Spark run the SQL with engine='spark' and transform_engine='spark' "
        "(pip install 'icestream[spark]')"
    ),
) -> Any:
    """Import DuckDB.

    Args:
        reason: What needs DuckDB.
        otherwise: What to do without DuckDB.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            f"{reason} needs DuckDB: pip install 'icestream[duckdb]', or {otherwise}"
        ) from error
    return duckdb


def refuse_small_memory(memory_bytes: int, what: str, otherwise: str | None = None) -> None:
    """Refuse a limit whose half is too small for DuckDB.

    Raises:
        MemoryBudgetError: If it is too small.
    """
    needed = 2 * LEAST_DUCKDB_BYTES
    if memory_bytes < needed:
        raise over_limit(
            f"{what} needs {format_bytes(needed)}, half of it for DuckDB",
            needed_bytes=needed,
            limit_bytes=memory_bytes,
            otherwise=otherwise or "let Spark run it with transform_engine='spark'",
        )


@dataclass(frozen=True, slots=True)
class DuckdbQuery:
    """A query over the view `source`: plain data, so executors can run it.

    Attributes:
        sql: The query.
        memory_bytes: Memory limit of DuckDB, which spills to disk.
        threads: Number of threads.
        place: Where DuckDB runs, for messages.

    Memory: DuckDB stays within `memory_bytes`.
    """

    sql: str
    memory_bytes: int
    threads: int = 1
    place: str = "On the local engine"

    def over(self, source: ArrowSource) -> ArrowSource:
        """The result of the query.

        Raises:
            InvalidArgumentError: If the SQL is not valid.
            MemoryBudgetError: If the limit is too small. It may be raised while rows are read.
            MissingExtraError: If DuckDB is not installed.
        """
        duckdb = duckdb_module()
        assert source.schema is not None
        kept: list[BaseException] = []
        reader = pa.RecordBatchReader.from_batches(source.schema, keep_error(source, kept))
        folder = ScratchFolder("duckdb")
        connection = duckdb.connect(":memory:")

        def close() -> None:
            connection.close()
            folder.close()
            source.close()

        try:
            connection.execute(f"SET memory_limit = '{self.memory_bytes}B'")
            connection.execute(f"SET temp_directory = '{folder.path}'")
            connection.execute(f"SET threads = {self.threads}")
            connection.execute("SET TimeZone = 'UTC'")
            connection.register(VIEW, reader)
            batches = arrow_reader(like_spark(connection.sql(self.sql)))
        except duckdb.Error as error:
            close()
            if kept:
                raise kept[0] from None
            raise self._failure(error) from error
        return ArrowSource(batches.schema, self._batches(batches, kept, duckdb.Error), close)

    def schema(self, stream: pa.Schema) -> pa.Schema:
        """The columns of the result, from the columns of the stream."""
        with self.over(ArrowSource(stream, iter(()), lambda: None)) as result:
            assert result.schema is not None
            return result.schema

    def _batches(
        self, batches: pa.RecordBatchReader, kept: list[BaseException], failure: type[Exception]
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in batches:
                yield batch
                del batch
        except (failure, pa.ArrowException, OSError) as error:
            if kept:
                raise kept[0] from None
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> IcestreamError:
        text = " ".join(str(error).split())
        if "Out of Memory" in text:
            return over_limit(
                f"the transform needs more than DuckDB's half of the memory ({text})",
                needed_bytes=4 * self.memory_bytes,
                limit_bytes=2 * self.memory_bytes,
                otherwise="load with engine='spark'",
            )
        return InvalidArgumentError(
            f"the transform failed: {text}. {self.place}, DuckDB runs it over the view {VIEW}"
        )


def keep_error(source: ArrowSource, kept: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """The batches. An error is kept, because its type is lost on the way through C."""
    try:
        for batch in source:
            yield batch
            del batch
    except BaseException as error:
        kept.append(error)
        raise


def quoted(name: str) -> str:
    """The name as an identifier in SQL, and in filters: in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def like_spark(relation: Any) -> Any:
    """Cast 128-bit sums of integers to 64 bits, as in Spark: Iceberg has no 128-bit integers."""
    if relation is None:
        raise InvalidArgumentError(
            "the query returns no rows: write one SELECT, such as 'SELECT * FROM source'"
        )
    names, kinds = relation.columns, [str(kind) for kind in relation.types]
    if "HUGEINT" not in kinds:
        return relation
    columns = []
    for name, kind in zip(names, kinds, strict=True):
        column = quoted(name)
        columns.append(f"CAST({column} AS BIGINT) AS {column}" if kind == "HUGEINT" else column)
    return relation.project(", ".join(columns))


def arrow_reader(relation: Any) -> pa.RecordBatchReader:
    """The rows of a relation as a stream."""
    if hasattr(relation, "to_arrow_reader"):
        return relation.to_arrow_reader(_BATCH_ROWS)
    return relation.fetch_record_batch(_BATCH_ROWS)  # before DuckDB 2
