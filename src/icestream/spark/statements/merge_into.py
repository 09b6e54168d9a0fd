"""MERGE INTO, as a call of `icestream.spark.merge`.

Every source row says what to do with the table rows that it matches (update, delete or nothing),
and what to do if it matches none (insert or nothing). `merge` can do the same to all rows, and can
also delete without inserting. A source row that says anything else makes the statement fail, and
the table does not change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import icestream.spark as verbs
from icestream.errors import DuplicateKeysError, InvalidArgumentError, TaskFailedError
from icestream.report.write_report import MergeReport
from icestream.spark.arrow.frame_schema import quoted
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.statements.assignment import (
    assigned,
    check_required,
    column_of,
    target_columns,
)
from icestream.spark.statements.change_rows import read_assignments
from icestream.spark.statements.conditions import RowExpression, conjuncts
from icestream.spark.statements.query import Session
from icestream.spark.statements.sources import parts_of
from icestream.spark.statements.words import (
    Cursor,
    Word,
    refused,
    sqlglot_module,
    words_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DELETE = "icestream_delete_row"
_MARK = "icestream-merge"
_FUNCTIONS = ("CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_USER", "SESSION_USER")
_START = Word("", 0, 0, "symbol")
_INTEGERS = ("ByteType", "ShortType", "IntegerType", "LongType")


@dataclass(slots=True)
class _Clause:
    """One WHEN clause: its condition, its action, and the values of columns (None for `*`)."""

    action: str
    condition: str | None
    values: dict[str, str] | None = field(default_factory=dict, repr=False)


def run_merge(session: Session, cursor: Cursor, ctes: str) -> MergeReport:
    """Run the statement after MERGE."""
    if cursor.keyword() == "WITH":
        raise refused("MERGE WITH SCHEMA EVOLUTION")
    merge = _Merge(session, cursor, ctes)
    frame, options = merge.plan()
    try:
        report: MergeReport = verbs.merge(
            frame, merge.table, memory=session.memory, branch=merge.branch, **options
        )
    except DuplicateKeysError as error:
        raise DuplicateKeysError(
            "several source rows of MERGE have the same key, such as "
            f"{'; '.join(error.examples)}: keep one of them in the source, for example with GROUP "
            "BY. Nothing was changed",
            column=error.column,
            examples=error.examples,
        ) from error
    except TaskFailedError as error:
        if _MARK in f"{error} {error.__cause__}":
            raise refused(
                "MERGE with a source row that says to delete if it matches and to insert if not, "
                "or to do nothing in only one of these cases",
                "add the same condition to both clauses, as in WHEN NOT MATCHED AND NOT (...)",
            ) from error
        raise
    return report


class _Merge:
    """A MERGE statement, read from a cursor."""

    def __init__(self, session: Session, cursor: Cursor, ctes: str) -> None:
        self._session = session
        cursor.expect("INTO")
        name = cursor.name()
        self.table, self.branch = session.names.target(name.parts)
        self._target = _alias(cursor, "USING") or name.parts[-1]
        cursor.expect("USING")
        start = cursor.place
        if cursor.symbol() == "(":
            cursor.group()
            last = "source"
        else:
            last = cursor.name().parts[-1]
        source = cursor.between(start, cursor.place)
        self._source = _alias(cursor, "ON") or last
        self._from = f"{source} AS {quoted(self._source)}"
        self._ctes = ctes
        cursor.expect("ON")
        self._on = RowExpression.parse(cursor.until("WHEN"))
        self._source_schema: Any = session.query(f"{ctes}SELECT * FROM {self._from}").schema
        self.matched: list[_Clause] = []
        self.unmatched: list[_Clause] = []
        while cursor.accept("WHEN"):
            self._read_clause(cursor)
        if not cursor.at_end or not (self.matched or self.unmatched):
            raise cursor.unexpected("WHEN")

    def _read_clause(self, cursor: Cursor) -> None:
        is_matched = not cursor.accept("NOT")
        cursor.expect("MATCHED")
        if cursor.accept("BY") and not cursor.accept("TARGET"):
            raise refused("WHEN NOT MATCHED BY SOURCE", "use a DELETE or UPDATE statement")
        condition = None
        if cursor.accept("AND"):
            condition = cursor.until("THEN")
            self._check(condition)
        cursor.expect("THEN")
        action = cursor.read().keyword
        if is_matched and action == "DELETE":
            self.matched.append(_Clause("delete", condition))
        elif is_matched and action == "UPDATE":
            cursor.expect("SET")
            self.matched.append(_Clause("update", condition, self._set(cursor)))
        elif not is_matched and action == "INSERT":
            self.unmatched.append(_Clause("insert", condition, self._insert(cursor)))
        else:
            raise refused(f"WHEN {'' if is_matched else 'NOT '}MATCHED THEN {action}")

    def _set(self, cursor: Cursor) -> dict[str, str] | None:
        if cursor.accept_symbol("*"):
            return None
        values = {}
        for name, text in read_assignments(cursor, "WHEN"):
            path = name[1:] if len(name) > 1 and self._is(name[0], self._target) else name
            if len(path) > 1:
                raise refused(f"UPDATE of the field {'.'.join(path)}", "set the whole column")
            self._check(text)
            values[self._column(path[0])] = text
        return values

    def _insert(self, cursor: Cursor) -> dict[str, str] | None:
        if cursor.accept_symbol("*"):
            return None
        names = _listed(cursor)
        cursor.expect("VALUES")
        texts = _listed(cursor)
        if len(names) != len(texts):
            raise refused(f"INSERT of {len(texts)} values for {len(names)} columns")
        for text in texts:
            self._check(text, is_insert=True)
        columns = [self._column(name.rpartition(".")[2].strip("`")) for name in names]
        return dict(zip(columns, texts, strict=True))

    def plan(self) -> tuple[DataFrame, dict[str, Any]]:
        """The source rows, and the options of `icestream.spark.merge`."""
        keys = self._keys()
        update, insert = self._single("update"), self._single("insert")
        has_delete = any(clause.action == "delete" for clause in self.matched)
        sets, inserts = self._values(update, keys), self._values(insert, keys)
        _check_values(sets, inserts, keys)
        if inserts is not None:
            check_required(self.table, inserts)
        values = {**keys, **(sets or {}), **(inserts or {})}
        options: dict[str, Any] = {
            "on": list(keys),
            "when_matched": "update" if update else "delete" if has_delete else "ignore",
            "when_not_matched": "insert" if insert else "ignore",
            "null_keys": "insert" if insert else "error",
        }
        if sets is not None:
            options["update_columns"] = [name for name in sets if name not in keys]
        action = self._action()
        flagged = bool(update or insert) and has_delete and action is not None
        if flagged:
            options["delete_when"] = f"{_DELETE} = true"
        return self._frame(values, keys, action, flagged=flagged), options

    def _frame(
        self, values: dict[str, str], keys: dict[str, str], action: str | None, *, flagged: bool
    ) -> DataFrame:
        columns = target_columns(self.table, list(values), case_sensitive=True)
        self._check_keys(keys, dict(columns))
        texts = [f"{text} AS {quoted(f'c{n}')}" for n, text in enumerate(values.values())]
        where = [] if self.unmatched else [f"{text} IS NOT NULL" for text in keys.values()]
        if action is not None:
            where.append(f"{action} <> 'skip'")
        if flagged:
            texts.append(f"{action} = 'delete' AS {_DELETE}")
            columns.append((_DELETE, pyspark_module("pyspark.sql.types").BooleanType()))
            nulls = " OR ".join(f"{text} IS NULL" for text in keys.values())
            where.append(f"NOT ({action} = 'delete' AND ({nulls}))")
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        query = f"{self._ctes}SELECT {', '.join(texts)} FROM {self._from}{condition}"
        frame = self._session.query(query)
        return assigned(frame, columns, table=".".join(self.table.name()), by_name=True)

    def _action(self) -> str | None:
        """An expression for what a source row does: apply, delete or skip. None: all apply."""
        matched, unmatched = _choice(self.matched), _choice(self.unmatched)
        actions = {clause.action for clause in self.matched}
        conditions = [clause.condition for clause in (*self.matched, *self.unmatched)]
        if conditions == [None] * len(conditions) and len(self.matched) < 2:
            return None
        verb = "update" if "update" in actions else "delete"
        if not self.unmatched:
            return (
                f"CASE WHEN {matched} = 'none' THEN 'skip' WHEN {matched} = '{verb}' THEN 'apply' "
                "ELSE 'delete' END"
            )
        if not self.matched:
            return f"CASE WHEN {unmatched} = 'none' THEN 'skip' ELSE 'apply' END"
        return (
            f"CASE WHEN {matched} = 'none' AND {unmatched} = 'none' THEN 'skip' "
            f"WHEN {matched} = '{verb}' AND {unmatched} = 'insert' THEN 'apply' "
            f"WHEN {matched} = 'delete' AND {unmatched} = 'none' THEN 'delete' "
            f"ELSE CAST(raise_error('{_MARK}') AS STRING) END"
        )

    def _single(self, action: str) -> _Clause | None:
        clauses = [each for each in (*self.matched, *self.unmatched) if each.action == action]
        if len(clauses) > 1:
            raise refused(f"MERGE with several {action.upper()} clauses", "use CASE in one clause")
        return clauses[0] if clauses else None

    def _values(self, clause: _Clause | None, keys: dict[str, str]) -> dict[str, str] | None:
        if clause is None:
            return None
        if clause.values is None:
            names = [each.name for each in self.table.schema().fields]
            return {name: self._source_column(name) for name in names}
        for key, text in keys.items():
            given = clause.values.get(key)
            if given is None and clause.action == "insert":
                raise refused(f"INSERT without {key!r}, a column of ON")
            if given is not None and not self._is_same(given, text):
                raise refused(f"the value {given} for {key!r}, a column of ON", f"use {text}")
        return {**clause.values, **{key: keys[key] for key in keys if key in clause.values}}

    def _source_column(self, name: str) -> str:
        for each in self._source_schema.names:
            if self._is(each, name):
                return f"{quoted(self._source)}.{quoted(each)}"
        raise InvalidArgumentError(
            f"the source of MERGE has no column {name!r}: list the columns instead of *"
        )

    def _keys(self) -> dict[str, str]:
        """The key columns of the table, with the source columns that they are compared with."""
        exp = sqlglot_module("sqlglot.expressions")
        keys: dict[str, str] = {}
        for node in conjuncts(self._on.tree):
            sides = [node.left, node.right] if isinstance(node, exp.EQ) else []
            owners = [self._owner(each) if isinstance(each, exp.Column) else "" for each in sides]
            if sorted(owners) != ["source", "target"]:
                raise refused(
                    f"MERGE ... ON {node.sql('spark')}",
                    "compare columns of the table with columns of the source, by = and AND",
                )
            target, source = sides if owners[0] == "target" else reversed(sides)
            path = parts_of(target)
            if len(path) > 1 and self._is(path[0], self._target):
                path = path[1:]
            name = self._column(path[0])
            if len(path) > 1 or name in keys:
                raise refused(f"MERGE ... ON {node.sql('spark')}")
            parts = parts_of(source)
            if not self._is(parts[0], self._source):
                parts = [self._source, *parts]
            keys[name] = quoted(*parts)
        return keys

    def _check_keys(self, keys: dict[str, str], types: dict[str, Any]) -> None:
        """Refuse keys whose comparison in Spark differs from one in the column's type."""
        columns = ", ".join(f"{text} AS {quoted(key)}" for key, text in keys.items())
        fields = self._session.query(f"{self._ctes}SELECT {columns} FROM {self._from}").schema
        for each in fields.fields:
            given, wanted = type(each.dataType).__name__, type(types[each.name]).__name__
            is_wider = given in _INTEGERS and wanted in _INTEGERS[_INTEGERS.index(given) :]
            if each.dataType.simpleString() != types[each.name].simpleString() and not is_wider:
                raise refused(
                    f"MERGE ... ON {each.name} ({types[each.name].simpleString()}) = a source "
                    f"column of type {each.dataType.simpleString()}",
                    "cast it in the source",
                )

    def _check(self, text: str, *, is_insert: bool = False) -> None:
        """Refuse expressions that need the table's own values."""
        for column in RowExpression.parse(text).columns:
            owner = self._owner(column, is_insert=is_insert)
            if owner != "source":
                raise refused(
                    f"{column.sql('spark')} in {text}, a column of the table that MERGE changes",
                    "use columns of the source",
                )
        if not is_insert:
            self._check_functions(text)

    def _check_functions(self, text: str) -> None:
        """Refuse `current_date` if the table has a column of this name, which Spark would use."""
        words = [_START, *words_of(text), _START]
        for before, word, after in zip(words, words[1:], words[2:], strict=False):
            is_bare = before.text != "." and after.text not in (".", "(")
            names = [each.name for each in self.table.schema().fields] if is_bare else []
            if word.keyword in _FUNCTIONS and any(self._is(word.text, name) for name in names):
                raise refused(
                    f"{word.text} in {text}, a column of the table that MERGE changes",
                    f"write {word.text}() for the function",
                )

    def _owner(self, column: Any, *, is_insert: bool = False) -> str:
        parts = parts_of(column)
        if len(parts) > 1 and self._is(parts[0], self._source):
            return "source"
        if len(parts) > 1 and self._is(parts[0], self._target):
            return "target"
        in_source = any(self._is(parts[0], each) for each in self._source_schema.names)
        in_target = any(self._is(parts[0], each.name) for each in self.table.schema().fields)
        if in_source and in_target and not is_insert:
            raise refused(f"the ambiguous column {parts[0]}", f"write {self._source}.{parts[0]}")
        return "source" if in_source else "target"

    def _is_same(self, given: str, key: str) -> bool:
        tree = RowExpression.parse(given).tree
        wanted = RowExpression.parse(key).tree
        parts = [self._folded(part) for part in parts_of(wanted)]
        exp = sqlglot_module("sqlglot.expressions")
        if not isinstance(tree, exp.Column):
            return False
        return [self._folded(part) for part in parts_of(tree)] in (parts, parts[1:])

    def _column(self, name: str) -> str:
        return column_of(self.table, name, case_sensitive=self._session.case_sensitive)

    def _folded(self, name: str) -> str:
        return name if self._session.case_sensitive else name.lower()

    def _is(self, one: str, other: str) -> bool:
        return self._folded(one) == self._folded(other)


def _alias(cursor: Cursor, end: str) -> str | None:
    cursor.accept("AS")
    return None if cursor.keyword() == end else cursor.read().name


def _listed(cursor: Cursor) -> list[str]:
    """Read a list in parentheses. Returns the texts of its parts."""
    first, last = cursor.group()
    inner = Cursor(cursor.text, cursor.words[:last], first)
    texts = []
    while not inner.at_end:
        start = inner.place
        while not inner.at_end and inner.symbol() != ",":
            inner.skip()
        texts.append(inner.between(start, inner.place))
        inner.accept_symbol(",")
    return texts


def _choice(clauses: list[_Clause]) -> str:
    """An expression for the action of the first clause whose condition is true."""
    whens = "".join(
        f" WHEN {'true' if each.condition is None else f'({each.condition})'} THEN '{each.action}'"
        for each in clauses
    )
    return f"CASE{whens} ELSE 'none' END" if whens else "'none'"


def _check_values(
    sets: dict[str, str] | None, inserts: dict[str, str] | None, keys: dict[str, str]
) -> None:
    """Refuse values that differ between UPDATE and INSERT: a merge has one value for each row."""
    if sets is not None and not set(sets) - set(keys):
        raise refused("UPDATE that sets only columns of ON")
    if sets is None or inserts is None:
        return
    for name, text in sets.items():
        other = inserts.get(name)
        if other is None or RowExpression.parse(other).tree != RowExpression.parse(text).tree:
            raise refused(
                f"MERGE that updates {name!r} to {text} and inserts {other or 'NULL'}",
                "use the same value in both clauses",
            )
