"""The methods of a scan that return its rows as one object, some of its rows, or their number."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue

from icestream.errors import InvalidArgumentError
from icestream.memory.budget import MemoryBudget
from icestream.read.filters.filter_text import filter_text
from icestream.read.request import ScanRequest
from icestream.read.results.async_batches import async_batches
from icestream.read.results.collected import Collection, collect
from icestream.read.results.conversions import (
    module_for,
    nothing_added,
    pandas_bytes,
    polars_bytes,
    repeats_values,
)
from icestream.read.results.row_count import UncountedSplits, counting_context, known_rows
from icestream.read.split import ReadContext, Split
from icestream.report.display import Figure, as_html, as_text, memory_figure
from icestream.report.other_names import no_such_method

_MOST_COLUMNS = 20


class ScanResults(ABC):
    """A stream of batches as one object. `Scan` provides the stream."""

    schema: pa.Schema
    _context: ReadContext
    _limit: int | None
    _memory: MemoryBudget
    _request: ScanRequest | None
    _splits: Iterable[Split] | None

    if not TYPE_CHECKING:  # Type checkers know all attributes.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(no_such_method(name, dir(type(self))))

    @abstractmethod
    def _batches(self) -> Generator[pa.RecordBatch]:
        """One pass over the scan."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise an error if the scan is closed."""

    @abstractmethod
    def _like_this(self, scan_request: ScanRequest | None, **parts: Any) -> ScanResults:
        """Another scan with the same memory, order and retries."""

    @abstractmethod
    def _plan(self, stopped: threading.Event) -> Iterable[Split]:
        """The splits of the scan."""

    @abstractmethod
    def _whole_files(self) -> Iterator[Split]:
        """The splits of the scan. Ends the plan at the end."""

    @abstractmethod
    def close(self) -> None:
        """Stop the scan."""

    def __repr__(self) -> str:
        return as_text("Scan", self._figures())

    def _repr_html_(self) -> str:
        return as_html("Scan", self._figures())

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Iterate with `async for`. Cancelling the task closes the scan."""
        self._check_open()
        async for batch in async_batches(self._batches(), self.close):
            yield batch
            del batch

    def to_arrow(self) -> pa.Table:
        """Read all rows into one Arrow table, inside the memory limit.

        Raises:
            MemoryBudgetError: If the rows do not fit the limit, with a limit that is probably large
                enough. It is raised before anything is read if metadata shows that they do not fit.

        Memory: the table and the scan together take at most the limit. The table does not count
            towards the limit after it is returned.
        """
        return self._collect("an Arrow table", nothing_added)

    def to_pandas(self, **options: Any) -> Any:
        """Read all rows into a pandas DataFrame, inside the memory limit.

        Args:
            **options: Options of `pyarrow.Table.to_pandas`, such as `types_mapper=pd.ArrowDtype`.

        Raises:
            MemoryBudgetError: If the Arrow data and the DataFrame do not fit the limit together.
            MissingExtraError: If pandas is not installed.
        """
        module_for("to_pandas", "pandas")
        table = self._collect("a pandas DataFrame, with its Arrow data", pandas_bytes)
        return table.to_pandas(**{"deduplicate_objects": repeats_values(table), **options})

    def to_polars(self) -> Any:
        """Read all rows into a Polars DataFrame, inside the memory limit.

        Raises:
            MemoryBudgetError: If the Arrow data and the DataFrame do not fit the limit together.
            MissingExtraError: If Polars is not installed.
        """
        polars = module_for("to_polars", "polars")
        table = self._collect("a Polars DataFrame, with its Arrow data", polars_bytes)
        return polars.from_arrow(table, rechunk=False)

    def to_duckdb(self, connection: Any = None) -> Any:
        """The scan as a DuckDB relation. Each query over the relation reads the table again.

        Args:
            connection: The connection for queries; DuckDB's default connection if left out.

        Raises:
            MissingExtraError: If DuckDB is not installed.

        Memory: the scan streams into DuckDB and stays inside its limit. DuckDB has its own
            `memory_limit`.
        """
        return (connection or module_for("to_duckdb", "duckdb")).from_arrow(self)

    def head(self, n: int = 5) -> pa.Table:
        """The first rows as an Arrow table. Reading stops when they are complete.

        Args:
            n: Maximum number of rows.

        Raises:
            MemoryBudgetError: If the rows do not fit the limit.
        """
        return self._limited(n).to_arrow()

    def count(self) -> int:
        """Count the rows.

        The number of rows in a file is taken from metadata, unless a filter or deletes apply to the
        file. Then only the columns of the filter are read, or one small column. A scan with a
        transform reads and transforms all rows.
        """
        self._check_open()
        if self._context.reshape is not None and self._context.reshape.transform is not None:
            return sum(batch.num_rows for batch in self._batches())
        schema = self._request.data_scan.table_metadata.schema() if self._request else None
        context = counting_context(self._context, schema)
        uncounted = UncountedSplits(self._plan(threading.Event()), context, self._limit)
        rows = 0
        try:
            for batch in self._like_this(None, splits=uncounted, context=context)._batches():
                rows += batch.num_rows
                if self._limit is not None and rows + uncounted.counted >= self._limit:
                    return self._limit
        finally:
            uncounted.close()
        rows += uncounted.counted
        return rows if self._limit is None else min(rows, self._limit)

    def _figures(self) -> list[Figure]:
        figures = [
            Figure("table", self._context.table),
            Figure("snapshot", str(self._context.snapshot_id)),
            Figure("columns", [["name", "type"], *_named_types(self.schema)]),
            memory_figure(self._memory.held_bytes, self._memory.limit_bytes, "memory now"),
        ]
        if not isinstance(self._context.row_filter, AlwaysTrue):
            figures.insert(2, Figure("filter", filter_text(self._context.row_filter)))
        if self._limit is not None:
            figures.insert(-1, Figure("limit", f"{self._limit:,} rows"))
        return figures

    def _collect(self, kind: str, added_bytes: Callable[[pa.RecordBatch], int]) -> pa.Table:
        self._check_open()
        wanted = Collection(
            schema=self.schema,
            name=self._context.table,
            kind=kind,
            budget=self._memory,
            added_bytes=added_bytes,
            rows_at_least=known_rows(self._request, self._limit),
            rows_at_most=self._rows_at_most,
        )
        return collect(self._batches(), wanted)

    def _rows_at_most(self) -> int:
        """Number of rows according to metadata, before filters and deletes."""
        rows = sum(split.rows for split in self._whole_files())
        return rows if self._limit is None else min(rows, self._limit)

    def _limited(self, rows: int) -> ScanResults:
        """A scan of the first rows of this one."""
        self._check_open()
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 0:
            raise InvalidArgumentError(f"n is {rows!r}: give a whole number of rows, 0 or more")
        limit = rows if self._limit is None else min(rows, self._limit)
        limited = replace(self._request, limit=limit) if self._request is not None else None
        return self._like_this(limited, splits=self._splits, context=self._context, limit=limit)


def _named_types(schema: pa.Schema) -> list[list[str]]:
    """The names and types of up to 20 columns."""
    shown = [[field.name, str(field.type)] for field in list(schema)[:_MOST_COLUMNS]]
    more = len(schema) - len(shown)
    return [*shown, [f"and {more} more", ""]] if more else shown
