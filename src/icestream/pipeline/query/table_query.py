"""Runs a query over tables by their names, inside a memory limit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, list_catalogs
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from icestream.catalogs.lookup import load_table, open_catalog
from icestream.errors import (
    IcestreamError,
    InvalidArgumentError,
    MemoryBudgetError,
    MissingExtraError,
    ScanClosedError,
)
from icestream.memory.budget import MemoryBudget, format_bytes, over_limit
from icestream.memory.machine import cores
from icestream.memory.scratch_folder import ScratchFolder
from icestream.pipeline.query.table_dataset import TableDataset
from icestream.write.rules.duckdb_query import quoted, refuse_small_memory

_ROWS = 16_384
_MOST_THREADS = 4
_THREAD_BYTES = 64 << 20
_EXCERPT = re.compile(r"\n\s*LINE \d+:.*", re.DOTALL)  # the place in the query, on its own lines
_FILE = re.compile(r"[/*?]|\.(csv|parquet|json|jsonl|ndjson|arrow|tsv|gz|zst)$", re.IGNORECASE)


class TableQuery:
    """One SELECT over tables that it names `db.t` or `catalog.db.t`.

    Half of the limit is DuckDB's, which spills to a temporary folder. A quarter is for reading the
    tables. The rest is for the consumer.

    Args:
        sql: The query.
        catalog: The catalog of names without one.
        budget: The memory limit.

    Attributes:
        tables: The names of the tables in the query.

    Raises:
        InvalidArgumentError: If the query is not a single SELECT, or names no known table.
        MemoryBudgetError: If the limit is too small for DuckDB.
        MissingExtraError: If DuckDB is not installed.

    Memory: within the limit, except for the rows of a batch.
    """

    def __init__(self, sql: str, catalog: Catalog, budget: MemoryBudget) -> None:
        duckdb = _duckdb()
        refuse_small_memory(budget.limit_bytes, "a query", otherwise="read a table with a scan")
        self._duckdb = duckdb
        self._budget = budget
        self._catalog = catalog
        self._stack = ExitStack()
        self._errors: list[BaseException] = []
        self._datasets: dict[str, TableDataset] = {}
        self._duckdb_bytes = budget.limit_bytes // 2
        self._scan_budget = MemoryBudget(max(1, budget.limit_bytes // 4), whole=budget)
        try:
            self._connection = self._connected()
            self._check(sql)
            self.tables = self._register(sql)
            self._rows = self._run(sql)
        except duckdb.Error as error:
            self.close()
            raise self._failure(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._rows.schema

    @property
    def files_read(self) -> int:
        """Data files that the scans have started to read."""
        files = 0
        for each in (each for dataset in self._datasets.values() for each in dataset.scans):
            with suppress(ScanClosedError):  # it has not started
                files += each.report.files
        return files

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._rows:
                yield batch
                del batch
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failure(error) from error

    def __enter__(self) -> TableQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the query and its scans."""
        for dataset in self._datasets.values():
            dataset.close()
        self._stack.close()

    def _connected(self) -> Any:
        folder = ScratchFolder("duckdb")
        self._stack.callback(folder.close)
        connection = self._duckdb.connect(
            ":memory:",
            config={
                "memory_limit": f"{self._duckdb_bytes}B",
                "temp_directory": str(folder.path),
                "threads": str(self._threads()),
                "python_enable_replacements": "false",
            },
        )
        self._stack.callback(connection.close)
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def _threads(self) -> int:
        """The number of threads: each needs memory of its own to sort or group rows."""
        return max(1, min(cores(), _MOST_THREADS, self._duckdb_bytes // _THREAD_BYTES))

    def _check(self, sql: str) -> None:
        statements = self._connection.extract_statements(sql)
        kinds = [str(each.type).rpartition(".")[2] for each in statements]
        if kinds != ["SELECT"]:
            what = f"is {kinds[0]}" if len(kinds) == 1 else f"has {len(kinds)} statements"
            raise InvalidArgumentError(
                f"the SQL {what}: write one SELECT; other commands load, merge and delete rows"
            )

    def _register(self, sql: str) -> tuple[str, ...]:
        """Create a view for each table that the query names."""
        loaded: dict[tuple[str, ...], str] = {}
        for parts in self._names(sql):
            if len(parts) == 1 and _FILE.search(parts[0]):
                continue  # DuckDB itself reads files
            name = ".".join(parts)
            self._create_view(parts, self._load(parts, name))
            loaded[parts] = name
        return tuple(loaded.values())

    def _names(self, sql: str) -> list[tuple[str, ...]]:
        """The names of the tables in the query, without those that it defines."""
        statement = "SELECT json_serialize_sql(?::VARCHAR)"
        ((text,),) = self._connection.execute(statement, [sql]).fetchall()
        names: dict[tuple[str, ...], None] = {}
        defined: set[str] = set()
        waiting = [json.loads(text)]
        while waiting:
            node = waiting.pop()
            if isinstance(node, list):
                waiting += node
            elif isinstance(node, dict):
                waiting += node.values()
                if node.get("type") == "BASE_TABLE":
                    parts = (node.get(f"{each}_name") for each in ("catalog", "schema", "table"))
                    names[tuple(part for part in parts if part)] = None
                defined |= {
                    entry["key"].lower() for entry in node.get("cte_map", {}).get("map", ())
                }
        return sorted(each for each in names if len(each) > 1 or each[0].lower() not in defined)

    def _load(self, parts: tuple[str, ...], name: str) -> Table:
        if len(parts) == 1:
            raise InvalidArgumentError(
                f"the query names the table {name!r}: include the namespace, as in shop.{name}"
            )
        if len(parts) > 2 and parts[0] == self._catalog.name:
            return load_table(".".join(parts[1:]), self._catalog)
        if len(parts) > 2 and parts[0] in {*list_catalogs(), *Config().get_known_catalogs()}:
            other = open_catalog(parts[0])
            self._stack.callback(other.close)
            return load_table(".".join(parts[1:]), other)
        return load_table(name, self._catalog)

    def _create_view(self, parts: tuple[str, ...], table: Table) -> None:
        dataset = TableDataset(table, self._scan_budget, self._errors.append)
        view = f"__icestream_{len(self._datasets)}"
        self._datasets[view] = dataset
        self._connection.register(view, dataset)
        *databases, schema, _ = parts
        for database in databases:
            self._connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {quoted(database)}")
        self._connection.execute(
            f"CREATE SCHEMA IF NOT EXISTS {'.'.join(map(quoted, (*databases, schema)))}"
        )
        self._connection.execute(
            f"CREATE VIEW {'.'.join(map(quoted, parts))} AS SELECT * FROM temp.{quoted(view)}"
        )

    def _run(self, sql: str) -> pa.RecordBatchReader:
        relation = self._connection.sql(sql)
        if hasattr(relation, "to_arrow_reader"):
            return relation.to_arrow_reader(_ROWS)
        return relation.fetch_record_batch(_ROWS)  # before DuckDB 2

    def _failure(self, error: Exception) -> BaseException:
        """The error of a scan if one failed, or else the one of DuckDB as an error of ours."""
        own = [each for each in self._errors if isinstance(each, (IcestreamError, OSError))]
        if own:
            return self._of_the_whole(own[0]) if isinstance(own[0], MemoryBudgetError) else own[0]
        stopped = [each for each in self._errors if not isinstance(each, Exception)]
        if stopped:
            return stopped[0]
        text = " ".join(_EXCERPT.sub("", str(error)).split())
        if "Out of Memory" in text:
            text = text.partition(" Possible solutions")[0]
            return over_limit(
                f"the query needs more than DuckDB's half of the memory ({text})",
                needed_bytes=4 * self._duckdb_bytes,
                limit_bytes=2 * self._duckdb_bytes,
                otherwise="filter the rows, or aggregate fewer groups",
            )
        return InvalidArgumentError(f"the query failed: {text}")

    def _of_the_whole(self, error: MemoryBudgetError) -> MemoryBudgetError:
        """The error of a scan, as one about the whole limit."""
        needed = 4 * error.needed_bytes
        return MemoryBudgetError(
            f"{error}. A query reads tables with a quarter of its limit, which is "
            f"{format_bytes(self._budget.limit_bytes)}: in total, raise memory to "
            f"{format_bytes(needed)} or more",
            needed_bytes=needed,
            limit_bytes=self._budget.limit_bytes,
        )


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            "SQL over tables needs DuckDB: pip install 'icestream[duckdb]'"
        ) from error
    return duckdb
