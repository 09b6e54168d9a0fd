"""Runs tests on Spark, with the same results as in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import Table

from icestream.errors import IcestreamError, InvalidArgumentError
from icestream.pipeline.audit.checked_columns import accepted, column_path, refuse_nested
from icestream.pipeline.engines.spark_frame import as_view
from icestream.pipeline.request.checks import (
    EXAMPLES,
    Check,
    CheckResult,
    judge_found,
    judge_nulls,
    judge_rows,
    shown_row,
)
from icestream.read.scan import scan
from icestream.spark.arrow.frame_schema import quoted
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.tasks.task_notes import driver_error
from icestream.spark.verbs.read_table import read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_VIEW = "result"


def run_spark_checks(
    checks: Sequence[Check],
    table: Table,
    *,
    branch: str,
    spark: SparkSession,
    memory: int | str | None,
) -> list[CheckResult]:
    """Run tests on a branch of a table.

    Args:
        checks: The tests.
        table: The table.
        branch: The branch.
        spark: The session.
        memory: Memory limit of each task; by default the session's.

    Returns:
        The results, in the order of the tests.

    Raises:
        InvalidArgumentError: If a test names an unknown column, or its SQL is not valid.
        TaskFailedError: If a task failed.
    """
    run = _SparkChecks(table, branch, spark, memory)
    try:
        counts = run.count([check for check in checks if check.kind in ("rows", "not_null")])
        return [counts[check] if check in counts else run.find(check) for check in checks]
    except IcestreamError:
        raise
    except Exception as error:
        shown = driver_error(error, what=f"testing {'.'.join(table.name())}")
        if shown is error:
            raise
        raise shown from error


class _SparkChecks:
    """Runs tests on one branch."""

    def __init__(
        self, table: Table, branch: str, spark: SparkSession, memory: int | str | None
    ) -> None:
        self._table = table
        self._branch = branch
        self._spark = spark
        self._memory = memory
        self._schema: pa.Schema = scan(table, branch=branch).schema
        self._functions: Any = pyspark_module("pyspark.sql.functions")

    def count(self, checks: Sequence[Check]) -> dict[Check, CheckResult]:
        """Run `rows` and `not_null` tests in one pass."""
        if not checks:
            return {}
        names = list(dict.fromkeys(name for check in checks for name in check.columns))
        one = self._functions.lit(1)
        nulls = [self._functions.count_if(self._column(name).isNull()) for name in names]
        row = self._frame(names).agg(self._functions.count(one), *nulls).first()
        assert row is not None
        counts = dict(zip(names, row[1:], strict=True))
        return {
            check: judge_rows(check, row[0])
            if check.kind == "rows"
            else judge_nulls(check, {name: counts[name] for name in check.columns})
            for check in checks
        }

    def find(self, check: Check) -> CheckResult:
        """Run a test that finds rows or keys."""
        if check.kind == "sql":
            return self._run_query(check)
        frame = self._other_values(check) if check.kind == "accepted_values" else self._keys(check)
        first = frame.take(EXAMPLES)
        count = int(frame.agg(self._functions.sum("rows")).first()[0]) if first else 0
        names = check.columns
        return judge_found(check, count, [shown_row(names, row[: len(names)]) for row in first])

    def _other_values(self, check: Check) -> DataFrame:
        """The values that are not accepted, with their row counts."""
        accepted(check, self._schema)  # raises if a value does not have the column's type
        column = self._column(check.columns[0])
        frame = self._frame(check.columns).select(column.alias("value"))
        value = self._functions.col("value")
        kind = frame.schema["value"].dataType
        known = [self._functions.lit(text).cast(kind) for text in check.values]
        others = frame.where(value.isNotNull() & ~value.isin(*known))
        return others.groupBy("value").agg(self._functions.count("*").alias("rows"))

    def _keys(self, check: Check) -> DataFrame:
        """Duplicate keys, each counted as one."""
        refuse_nested(check, self._schema)
        names = [f"key{number}" for number in range(len(check.columns))]
        named = zip(check.columns, names, strict=True)
        keys = self._frame(check.columns).select(
            *(self._column(column).alias(name) for column, name in named)
        )
        for name in names:  # `dropna` would drop NaN, too
            keys = keys.where(self._functions.col(name).isNotNull())
        counted = keys.groupBy(*names).agg(self._functions.count("*").alias("rows"))
        twice = counted.where(self._functions.col("rows") > 1)
        return twice.withColumn("rows", self._functions.lit(1))

    def _run_query(self, check: Check) -> CheckResult:
        errors = pyspark_module("pyspark.errors")
        try:
            with as_view(self._spark, self._frame(None), _VIEW):
                rows = self._spark.sql(check.sql)
                first = rows.take(EXAMPLES)
                count = rows.count() if first else 0
                names = rows.columns
        except errors.AnalysisException as error:
            shown = " ".join(str(error).split("\n\nJVM stacktrace")[0].split())[:500]
            raise InvalidArgumentError(
                f"the test {check.name!r} can't be run: {shown}. Its table is called result"
            ) from error
        return judge_found(check, count, [shown_row(names, row) for row in first])

    def _frame(self, names: Sequence[str] | None) -> DataFrame:
        """The branch, reduced to some columns here because Spark does not push projections down."""
        columns = None
        if names is not None:
            roots = {column_path(name, self._schema)[0] for name in names}
            columns = [name for name in self._schema.names if name in roots]
            columns = columns or self._schema.names[:1]
        return read(
            self._spark, self._table, branch=self._branch, columns=columns, memory=self._memory
        )

    def _column(self, name: str) -> Column:
        column: Column = self._functions.col(quoted(*column_path(name, self._schema)))
        return column
