"""Runs tests in this process, in one pass over the table and within the memory limit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from icestream.errors import InvalidArgumentError, MissingExtraError
from icestream.memory.budget import MemoryBudget
from icestream.memory.scratch_folder import ScratchFolder
from icestream.pipeline.audit.checked_columns import accepted, column_of, column_path, refuse_nested
from icestream.pipeline.audit.repeated_keys import RepeatedKeys
from icestream.pipeline.request.checks import (
    EXAMPLES,
    Check,
    CheckResult,
    judge_found,
    judge_nulls,
    judge_rows,
    shown_row,
)
from icestream.read.distant_years import shown_values
from icestream.read.scan import Scan, scan
from icestream.write.rules.stream_filter import decoded


def run_local_checks(
    checks: Sequence[Check], table: Table, *, branch: str, memory: int | str
) -> list[CheckResult]:
    """Run tests on a branch of a table.

    Args:
        checks: The tests.
        table: The table.
        branch: The branch.
        memory: Memory limit in bytes, or text such as `"256MB"`.

    Returns:
        The results, in the order of the tests.

    Raises:
        InvalidArgumentError: If a test names an unknown column, or its SQL is not valid.
        MissingExtraError: If a test is SQL, and DuckDB is not installed.

    Memory: half of the limit for the scan, and half for keys or DuckDB, which spill to disk.
    """
    budget = MemoryBudget(memory)
    queries = [check for check in checks if check.kind == "sql"]
    others = [check for check in checks if check.kind != "sql"]
    if queries:
        _duckdb()  # before anything is read
    results = dict(zip(others, _run_in_one_pass(others, table, branch, budget), strict=True))
    if queries:
        results.update(zip(queries, _run_queries(queries, table, branch, budget), strict=True))
    return [results[check] for check in checks]


class _Values:
    """`accepted_values`, batch by batch."""

    def __init__(self, check: Check, schema: pa.Schema) -> None:
        self._check = check
        self._path = column_path(check.columns[0], schema)
        self._accepted = accepted(check, schema)
        self._count = 0
        self._examples: list[str] = []

    def add(self, batch: pa.RecordBatch) -> None:
        column = column_of(batch, self._path)
        plain = decoded(column)
        other = pc.and_(pc.is_valid(plain), pc.invert(pc.is_in(plain, value_set=self._accepted)))
        self._count += pc.sum(other).as_py() or 0
        if len(self._examples) < EXAMPLES:
            for value in shown_values(pc.unique(plain.filter(other))[:EXAMPLES]):
                shown = shown_row(self._check.columns, [value])
                if shown not in self._examples:
                    self._examples.append(shown)

    def result(self) -> CheckResult:
        return judge_found(self._check, self._count, self._examples)


class _Nulls:
    """`not_null`, batch by batch."""

    def __init__(self, check: Check, schema: pa.Schema) -> None:
        self._check = check
        self._paths = {name: column_path(name, schema) for name in check.columns}
        self._nulls = dict.fromkeys(check.columns, 0)

    def add(self, batch: pa.RecordBatch) -> None:
        for name, path in self._paths.items():
            self._nulls[name] += decoded(column_of(batch, path)).null_count

    def result(self) -> CheckResult:
        return judge_nulls(self._check, self._nulls)


class _Rows:
    """`rows`, batch by batch."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows

    def result(self) -> CheckResult:
        return judge_rows(self._check, self._rows)


class _Unique:
    """`unique`, batch by batch. A second scan finds examples if there are duplicates."""

    def __init__(
        self, check: Check, schema: pa.Schema, keys: RepeatedKeys, again: _Reopened
    ) -> None:
        self._check = check
        self._paths = [column_path(name, schema) for name in check.columns]
        refuse_nested(check, schema)
        self._keys = keys
        self._again = again

    def add(self, batch: pa.RecordBatch) -> None:
        self._keys.add([column_of(batch, path) for path in self._paths])

    def result(self) -> CheckResult:
        count = self._keys.count()
        return judge_found(self._check, count, self._examples() if count else ())

    def _examples(self) -> list[str]:
        examples: list[str] = []
        with self._again(sorted({path[0] for path in self._paths})) as batches:
            for batch in batches:
                columns = [column_of(batch, path) for path in self._paths]
                for values in self._keys.examples_in(columns):
                    examples.append(shown_row(self._check.columns, values))
                if self._keys.are_shown:
                    break
        return examples


class _Reopened:
    """Scans the branch, once per call."""

    def __init__(self, table: Table, branch: str, budget: MemoryBudget) -> None:
        self._table = table
        self._branch = branch
        self._budget = budget

    def __call__(self, columns: Sequence[str] | None) -> Scan:
        memory = MemoryBudget(self._budget.limit_bytes // 2, whole=self._budget)
        return scan(self._table, branch=self._branch, columns=columns, memory=memory)


def _run_in_one_pass(
    checks: Sequence[Check], table: Table, branch: str, budget: MemoryBudget
) -> list[CheckResult]:
    if not checks:
        return []
    schema = scan(table, branch=branch).schema
    again = _Reopened(table, branch, budget)
    uniques = sum(check.kind == "unique" for check in checks)
    most_bytes = budget.limit_bytes // (4 * max(1, uniques))
    with ExitStack() as stack:

        def counter(check: Check) -> Any:
            if check.kind == "rows":
                return _Rows(check)
            if check.kind == "not_null":
                return _Nulls(check, schema)
            if check.kind == "accepted_values":
                return _Values(check, schema)
            keys = RepeatedKeys(budget, most_bytes=most_bytes, kept=EXAMPLES)
            return _Unique(check, schema, stack.enter_context(keys), again)

        counters = [counter(check) for check in checks]
        named = {column_path(name, schema)[0] for check in checks for name in check.columns}
        columns = [name for name in schema.names if name in named] or schema.names[:1]
        with again(columns) as batches:
            for batch in batches:
                for each in counters:
                    each.add(batch)
        return [each.result() for each in counters]


def _run_queries(
    checks: Sequence[Check], table: Table, branch: str, budget: MemoryBudget
) -> list[CheckResult]:
    """Run SQL tests on a copy of the table on disk, because a query may read it several times."""
    duckdb = _duckdb()
    again = _Reopened(table, branch, budget)
    with ScratchFolder("checks") as folder:
        settings = {
            "memory_limit": f"{max(1, budget.limit_bytes // 2 // 1000)}KB",
            "temp_directory": str(folder),
            "preserve_insertion_order": "false",
            "threads": 2,
        }
        with (
            duckdb.connect(str(folder / "result.duckdb"), config=settings) as database,
            again(None) as batches,
        ):
            stream = pa.RecordBatchReader.from_batches(batches.schema, iter(batches))
            database.register("icestream_stream", stream)
            database.execute("CREATE TABLE result AS SELECT * FROM icestream_stream")
            database.unregister("icestream_stream")
            return [_run_query(check, database, duckdb) for check in checks]


def _run_query(check: Check, database: Any, duckdb: Any) -> CheckResult:
    try:
        (count,) = database.execute(f"SELECT count(*) FROM ({check.sql}\n)").fetchone()
        examples: list[str] = []
        if count:
            rows = database.execute(f"SELECT * FROM ({check.sql}\n) LIMIT {EXAMPLES}")
            names = [column[0] for column in rows.description]
            examples = [shown_row(names, row) for row in rows.fetchall()]
    except duckdb.Error as error:
        raise InvalidArgumentError(
            f"the test {check.name!r} can't be run: {type(error).__name__}: {error}. Its table is "
            "called result"
        ) from error
    return judge_found(check, count, examples)


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            "a test with sql needs DuckDB where engine is 'local': pip install "
            "'icestream[duckdb]', or run it with engine='spark'"
        ) from error
    return duckdb
