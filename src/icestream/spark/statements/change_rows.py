"""DELETE FROM and UPDATE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table

import icestream.spark as verbs
from icestream.report.write_report import WriteReport
from icestream.spark.arrow.frame_schema import quoted
from icestream.spark.statements.assignment import (
    cast_text,
    column_of,
    readable_columns,
    target_columns,
)
from icestream.spark.statements.conditions import (
    Conditions,
    NotExactError,
    Path,
    RowExpression,
    all_of,
    conjuncts,
)
from icestream.spark.statements.constants import Constants
from icestream.spark.statements.query import Session, spark_errors
from icestream.spark.statements.sources import parts_of
from icestream.spark.statements.words import Cursor, Name, refused, sqlglot_module


@dataclass(frozen=True, slots=True)
class _Target:
    """The table that a statement changes, and the names that the statement uses for it."""

    table: Table
    branch: str | None
    names: tuple[str, ...]
    case_sensitive: bool

    @classmethod
    def read(cls, session: Session, cursor: Cursor) -> _Target:
        """Read the table's name and its alias."""
        name: Name = cursor.name()
        table, branch = session.names.target(name.parts)
        if cursor.keyword() in ("VERSION", "TIMESTAMP", "FOR"):
            raise refused("a change of an older version")
        cursor.accept("AS")
        alias = name.parts[-1]
        if not cursor.at_end and cursor.keyword() not in ("SET", "WHERE"):
            alias = cursor.read().name
        return cls(table, branch, (alias,), session.case_sensitive)

    def is_called(self, name: str) -> bool:
        """Whether the statement uses this name for the table."""
        folded = [each if self.case_sensitive else each.lower() for each in self.names]
        return (name if self.case_sensitive else name.lower()) in folded

    def path_of(self, node: Any) -> Path | None:
        """The path of a column, for `Conditions`."""
        exp = sqlglot_module("sqlglot.expressions")
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        parts = parts_of(node)
        if len(parts) > 1 and self.is_called(parts[0]):
            parts = parts[1:]
        name = column_of(self.table, parts[0], case_sensitive=self.case_sensitive)
        return (name, *parts[1:])


def run_delete(session: Session, cursor: Cursor, ctes: str) -> WriteReport:
    """Run the statement after DELETE.

    Raises:
        InvalidArgumentError: If the condition has no exact counterpart in PyIceberg's filters.
    """
    if ctes:
        raise refused("WITH ... DELETE")
    cursor.expect("FROM")
    target = _Target.read(session, cursor)
    where: BooleanExpression = AlwaysTrue()
    if cursor.accept("WHERE"):
        condition = RowExpression.parse(cursor.rest())
        conditions = _conditions(session, target, condition.text)
        try:
            where = conditions.translate(condition.tree)
        except NotExactError as error:
            raise refused(
                f"DELETE with the condition {error}",
                "compare columns with plain constants, or use MERGE with WHEN MATCHED THEN DELETE",
            ) from None
    _expect_end(cursor)
    delete: Any = verbs.delete
    report: WriteReport = delete(
        session.spark, target.table, where, memory=session.memory, branch=target.branch
    )
    return report


def run_update(session: Session, cursor: Cursor, ctes: str) -> WriteReport:
    """Run the statement after UPDATE.

    A condition without an exact counterpart in PyIceberg's filters becomes a part of the values:
    other rows keep theirs.
    """
    if ctes:
        raise refused("WITH ... UPDATE")
    target = _Target.read(session, cursor)
    cursor.expect("SET")
    values = read_assignments(cursor, "WHERE")
    where: list[BooleanExpression] = []
    others: list[str] = []
    if cursor.accept("WHERE"):
        text = cursor.rest()
        where, others = _divided(session, target, text)
    _expect_end(cursor)
    values_of = _Values(session, target)
    chosen = {}
    for name, text in values:
        column = _assigned_column(target, name)
        if column in chosen:
            raise refused(f"UPDATE that sets {column!r} twice")
        value = RowExpression.parse(text).without_qualifiers(target.is_called)
        chosen[column] = values_of.conditional(value, column, others)
    update: Any = verbs.update
    report: WriteReport = update(
        session.spark,
        target.table,
        chosen,
        where=all_of(where),
        memory=session.memory,
        branch=target.branch,
    )
    return report


def read_assignments(cursor: Cursor, *ends: str) -> list[tuple[tuple[str, ...], str]]:
    """Read `a = 1, t.b = c + 1` up to one of some keywords. Returns names and expressions."""
    values = []
    while True:
        name = cursor.name().parts
        if not cursor.accept_symbol("="):
            raise cursor.unexpected("'='")
        start = cursor.place
        while not cursor.at_end and cursor.symbol() != "," and cursor.keyword() not in ends:
            cursor.skip()
        text = cursor.between(start, cursor.place)
        if not text or text.upper() == "DEFAULT":
            raise refused(f"the value {text or 'of nothing'} for {'.'.join(name)}")
        values.append((name, text))
        if not cursor.accept_symbol(","):
            return values


def _divided(
    session: Session, target: _Target, text: str
) -> tuple[list[BooleanExpression], list[str]]:
    """The condition as filters, and the texts of the parts that have no filter."""
    condition = RowExpression.parse(text)
    conditions = _conditions(session, target, text)
    where: list[BooleanExpression] = []
    is_exact = True
    for node in conjuncts(condition.tree):
        try:
            where.append(conditions.translate(node))
        except NotExactError:
            is_exact = False
    return where, [] if is_exact else [condition.without_qualifiers(target.is_called)]


class _Values:
    """The values that an UPDATE sets in the rows for which its condition is true."""

    def __init__(self, session: Session, target: _Target) -> None:
        self._session = session
        self._target = target

    def conditional(self, value: str, column: str, conditions: list[str]) -> str:
        """An expression for the value if the condition is true, and else for the old value.

        Spark would cast both to a common type, and so change old values. The new value is cast to
        the type of the column instead.

        Raises:
            SchemaMismatchError: If the column can't take the value.
        """
        if not conditions:
            return value
        [condition] = conditions
        table = self._target.table
        [(_, kind)] = target_columns(table, [column], case_sensitive=True)
        rows = self._session.spark.createDataFrame([], readable_columns(table))
        with spark_errors():
            [field] = rows.selectExpr(f"{value} AS {quoted(column)}").schema.fields
        name = ".".join(table.name())
        cast = cast_text(self._session.spark, value, field, kind, table=name)
        return f"CASE WHEN {condition} THEN {cast} ELSE {quoted(column)} END"


def _assigned_column(target: _Target, name: tuple[str, ...]) -> str:
    if len(name) > 1 and target.is_called(name[0]):
        name = name[1:]
    if len(name) > 1:
        raise refused(f"UPDATE of the field {'.'.join(name)}", "set the whole column")
    return column_of(target.table, name[0], case_sensitive=target.case_sensitive)


def _conditions(session: Session, target: _Target, text: str) -> Conditions:
    constants = Constants.of(session.spark, text)
    return Conditions(target.table.schema(), constants, target.path_of)


def _expect_end(cursor: Cursor) -> None:
    if not cursor.at_end:
        raise cursor.unexpected("its end")
