"""Tests on a result, run by Spark: the same answers as in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import Table

from icestream.errors import IcestreamError, InvalidArgumentError
from icestream.pipeline.checked_columns import accepted, column_path, refuse_nested
from icestream.pipeline.checks import (
    EXAMPLES,
    Check,
    CheckResult,
    judge_found,
    judge_nulls,
    judge_rows,
    shown_row,
)
from icestream.pipeline.spark_view import as_view
from icestream.read.scan import scan
from icestream.spark.arrow_map import quoted
from icestream.spark.installed import pyspark_module
from icestream.spark.read_table import read
from icestream.spark.task_failure import driver_error

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
    """Look at a branch of a table.

    Args:
        checks: The tests.
        table: The table.
        branch: The branch.
        spark: The session.
        memory: What each task may hold; what the session was given if None.

    Returns:
        What each test found, in their order.

    Raises:
        InvalidArgumentError: If a test names a column that is not there, or its SQL is wrong.
        TaskFailedError: If tasks failed for good.
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
    """Tests on one branch."""

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
        """Rows and nulls, all in one pass."""
        if not checks:
            return {}
        names = list(dict.fromkeys(name for check in checks for name in check.columns))
        one = self._functions.lit(1)
        nulls = [self._functions.count_if(self._column(name).isNull()) for name in names]
        row = self._frame(names).agg(self._functions.count(one), *nulls).first()
        assert row is not None
        found = dict(zip(names, row[1:], strict=True))
        return {
            check: judge_rows(check, row[0])
            if check.kind == "rows"
            else judge_nulls(check, {name: found[name] for name in check.columns})
            for check in checks
        }

    def find(self, check: Check) -> CheckResult:
        """What a test does not hold for."""
        if check.kind == "sql":
            return self._run_query(check)
        frame = self._other_values(check) if check.kind == "accepted_values" else self._keys(check)
        first = frame.take(EXAMPLES)
        count = 0
        if first:
            count = int(frame.agg(self._functions.sum("rows")).first()[0])
        names = check.columns
        return judge_found(check, count, [shown_row(names, row[: len(names)]) for row in first])

    def _other_values(self, check: Check) -> DataFrame:
        """Values that are not accepted, and how many rows have each."""
        accepted(check, self._schema)  # refuses what can't be a value of the column
        column = self._column(check.columns[0])
        frame = self._frame(check.columns).select(column.alias("value"))
        value = self._functions.col("value")
        kind = frame.schema["value"].dataType
        known = [self._functions.lit(text).cast(kind) for text in check.values]
        others = frame.where(value.isNotNull() & ~value.isin(*known))
        return others.groupBy("value").agg(self._functions.count("*").alias("rows"))

    def _keys(self, check: Check) -> DataFrame:
        """Keys that are there twice, each with a 1."""
        for name in check.columns:
            refuse_nested(name, self._schema)
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
                found = self._spark.sql(check.sql)
                first = found.take(EXAMPLES)
                count = found.count() if first else 0
                names = found.columns
        except errors.AnalysisException as error:
            shown = " ".join(str(error).split("\n\nJVM stacktrace")[0].split())[:500]
            raise InvalidArgumentError(
                f"the test {check.name!r} can't be run: {shown}. The table is called result in it"
            ) from error
        return judge_found(check, count, [shown_row(names, row) for row in first])

    def _frame(self, names: Sequence[str] | None) -> DataFrame:
        """The branch, with the columns that are needed: Spark does not tell a source which."""
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
