"""INSERT INTO and INSERT OVERWRITE."""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform

import icestream.spark as verbs
from icestream.errors import InvalidArgumentError
from icestream.report.write_report import WriteReport
from icestream.spark.format.filters import pushed
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.registration import setting
from icestream.spark.statements.assignment import (
    assigned,
    check_required,
    column_of,
    target_columns,
)
from icestream.spark.statements.query import Session, run_sql
from icestream.spark.statements.words import Cursor, refused

_OVERWRITE_SETTING = "spark.sql.sources.partitionOverwriteMode"
_FIRST_WORDS = ("SELECT", "VALUES", "WITH", "FROM", "TABLE", "MAP", "REDUCE")


def run_insert(session: Session, cursor: Cursor, ctes: str) -> WriteReport:
    """Run the statement whose next words are INTO or OVERWRITE.

    Args:
        session: The session.
        cursor: The statement, after INSERT.
        ctes: The text of a WITH clause in front of INSERT.
    """
    replaces = cursor.accept("OVERWRITE")
    if replaces and cursor.keyword() in ("DIRECTORY", "LOCAL"):
        raise refused("INSERT OVERWRITE DIRECTORY")
    if not replaces:
        cursor.expect("INTO")
    cursor.accept("TABLE")
    table, branch = session.names.target(cursor.name().parts)
    partition = _partition(session, cursor, table)
    if cursor.keyword() in ("IF", "REPLACE"):
        raise refused(f"INSERT ... {cursor.keyword()}")
    by_name = cursor.accept("BY", "NAME")
    listed = None if by_name else _listed(cursor)
    frame = session.query(f"{ctes}{cursor.rest()}")
    fixed = [column_of(table, name, case_sensitive=session.case_sensitive) for name in partition]
    if by_name:
        listed = frame.columns
    columns = target_columns(table, listed, case_sensitive=session.case_sensitive)
    for each, _ in columns if listed is not None else ():
        if each in fixed:
            raise refused(f"INSERT with {each!r} both in PARTITION and among the columns")
    if listed is None:
        columns = [each for each in columns if each[0] not in fixed]
    check_required(table, [*fixed, *(each for each, _ in columns)])
    name = ".".join(table.name())
    rows = assigned(frame, columns, table=name, by_name=by_name)
    where: BooleanExpression | None = None
    for each, given in zip(fixed, partition.values(), strict=True):
        rows, condition = _with_constant(session, rows, table, each, given)
        where = condition if where is None else And(where, condition)
    options: dict[str, Any] = {"memory": session.memory, "branch": branch}
    if not replaces:
        return verbs.append(rows, table, **options)
    mode = (setting(session.spark, _OVERWRITE_SETTING) or "static").lower()
    if mode == "dynamic" and _has_open_partitions(table, fixed):
        return verbs.overwrite(rows, table, partitions="dynamic", **options)
    return verbs.overwrite(rows, table, where=where, **options)


def _listed(cursor: Cursor) -> list[str] | None:
    """Read the list of columns. A query may start with a parenthesis, too."""
    if cursor.symbol() != "(" or cursor.keyword(1) in _FIRST_WORDS or cursor.symbol(1) == "(":
        return None
    first, last = cursor.group()
    return [each.name for each in cursor.words[first:last] if each.text != ","]


def _partition(session: Session, cursor: Cursor, table: Table) -> dict[str, str]:
    """Read PARTITION (a = 1, b). Returns the columns with constants, and the constants' texts."""
    if not cursor.accept("PARTITION"):
        return {}
    first, last = cursor.group()
    inner = Cursor(cursor.text, cursor.words[:last], first)
    partition: dict[str, str] = {}
    while not inner.at_end:
        name = inner.name()
        column = column_of(table, str(name), case_sensitive=session.case_sensitive)
        if not _is_partitioned_by(table, column):
            raise InvalidArgumentError(
                f"{'.'.join(table.name())} is not partitioned by the values of {column!r}: leave "
                "it out of PARTITION"
            )
        if inner.accept_symbol("="):
            start = inner.place
            while not inner.at_end and inner.symbol() != ",":
                inner.skip()
            partition[column] = inner.between(start, inner.place)
        inner.accept_symbol(",")
    return partition


def _is_partitioned_by(table: Table, column: str) -> bool:
    field = table.schema().find_field(column)
    return any(
        each.source_id == field.field_id and isinstance(each.transform, IdentityTransform)
        for each in table.spec().fields
    )


def _has_open_partitions(table: Table, fixed: list[str]) -> bool:
    """Whether the values of PARTITION leave more than one partition to write to."""
    known = {table.schema().find_field(name).field_id for name in fixed}
    return any(
        each.source_id not in known and not isinstance(each.transform, VoidTransform)
        for each in table.spec().fields
    )


def _with_constant(
    session: Session, rows: Any, table: Table, column: str, given: str
) -> tuple[Any, BooleanExpression]:
    """The rows with a partition column, and the filter of that partition."""
    [(name, kind)] = target_columns(table, [column], case_sensitive=True)
    functions = pyspark_module("pyspark.sql.functions")
    filters = pyspark_module("pyspark.sql.datasource")
    text = f"SELECT CAST({given} AS {kind.simpleString()}) AS value"
    [[value]] = run_sql(session.spark, text, {}).collect()
    if value is None:
        raise refused("PARTITION with NULL")
    condition = pushed(filters.EqualTo((name,), value), table.schema())
    if condition is None:
        raise refused(f"PARTITION with the {kind.simpleString()} {given}")
    return rows.withColumn(name, functions.lit(value).cast(kind)), condition
