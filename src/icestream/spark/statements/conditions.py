"""Conditions of SQL as PyIceberg expressions that are true for exactly the same rows.

A condition without such an expression is left to Spark, or refused. The comparisons themselves are
translated by `icestream.spark.format.filters`, which handles nulls and NaN as Spark does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, Or
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, StructType

from icestream.spark.format.filters import pushed
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.statements.constants import Constants, NotConstantError
from icestream.spark.statements.words import (
    DIALECT,
    refused,
    sqlglot_module,
    unparsable,
    words_of,
)

Path = tuple[str, ...]

_SELECT = "SELECT "
# Clauses of a SELECT, by sqlglot's names for them, where these differ from the keywords.
_CLAUSES = {
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "from_": "FROM",
    "group": "GROUP BY",
    "joins": "JOIN",
    "laterals": "LATERAL VIEW",
    "locks": "FOR UPDATE",
    "order": "ORDER BY",
    "sample": "TABLESAMPLE",
    "sort": "SORT BY",
    "windows": "WINDOW",
}

_FLIPPED = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}
_COMPARISONS = {
    "EQ": "EqualTo",
    "NEQ": "EqualTo",
    "NullSafeEQ": "EqualNullSafe",
    "GT": "GreaterThan",
    "GTE": "GreaterThanOrEqual",
    "LT": "LessThan",
    "LTE": "LessThanOrEqual",
}


class NotExactError(Exception):
    """The condition has no exact counterpart. The message is the part that has none."""


class Conditions:
    """Translates conditions on the columns of one table.

    Args:
        schema: The table's columns.
        constants: Reads constants.
        path_of: The path of the column that a node of sqlglot names; None if it is not a column of
            this table.
    """

    def __init__(
        self, schema: Schema, constants: Constants, path_of: Callable[[Any], Path | None]
    ) -> None:
        self._schema = schema
        self._constants = constants
        self._path_of = path_of
        self._exp = sqlglot_module("sqlglot.expressions")
        self._filters: Any = pyspark_module("pyspark.sql.datasource")

    def translate(self, node: Any, *, negated: bool = False) -> BooleanExpression:
        """The expression that is true where a condition, or its negation, is true.

        Raises:
            NotExactError: If there is no such expression.
        """
        exp = self._exp
        if isinstance(node, exp.Paren):
            return self.translate(node.this, negated=negated)
        if isinstance(node, exp.Not):
            return self.translate(node.this, negated=not negated)
        if isinstance(node, (exp.And, exp.Or)):
            both = (
                self.translate(node.left, negated=negated),
                self.translate(node.right, negated=negated),
            )
            return And(*both) if isinstance(node, exp.And) != negated else Or(*both)
        if isinstance(node, exp.Between):
            return self._between(node, negated)
        leaf, flipped = self._leaf(node)
        if negated != flipped:
            leaf = self._filters.Not(leaf)
        expression = pushed(leaf, self._schema)
        if expression is None:
            raise NotExactError(node.sql("spark"))
        return expression

    def _between(self, node: Any, negated: bool) -> BooleanExpression:
        if node.args.get("symmetric"):
            raise NotExactError(node.sql("spark"))
        exp = self._exp
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
        return self.translate(exp.And(this=low, expression=high), negated=negated)

    def _leaf(self, node: Any) -> tuple[Any, bool]:
        """Spark's filter for a comparison, and whether it is negated."""
        exp, filters = self._exp, self._filters
        name = type(node).__name__
        try:
            if name in _COMPARISONS:
                return self._comparison(node, _COMPARISONS[name]), name == "NEQ"
            if isinstance(node, exp.Is):
                return self._is(node)
            if isinstance(node, exp.In) and self._is_plain(node, "this", "expressions"):
                path, kind = self._column(node.this)
                values = [self._value_or_null(each, kind) for each in node.expressions]
                return filters.In(path, tuple(values)), False
            if isinstance(node, (exp.Like, exp.StartsWith)):
                return self._starts_with(node), False
            path, kind = self._column(node)
            return filters.EqualTo(path, self._constants.value(exp.true(), kind)), False
        except NotConstantError:
            raise NotExactError(node.sql("spark")) from None

    def _comparison(self, node: Any, kind: str) -> Any:
        left, right = node.left, node.right
        if self._path_of(left) is None:
            left, right, kind = right, left, _FLIPPED.get(kind, kind)
        path, column = self._column(left)
        if kind == "EqualNullSafe":
            return self._filters.EqualNullSafe(path, self._value_or_null(right, column))
        return getattr(self._filters, kind)(path, self._constants.value(right, column))

    def _is(self, node: Any) -> tuple[Any, bool]:
        path, kind = self._column(node.this)
        if isinstance(node.expression, self._exp.Null):
            return self._filters.IsNull(path), False
        value = self._constants.value(node.expression, kind)  # IS TRUE, IS FALSE
        return self._filters.EqualNullSafe(path, value), False

    def _starts_with(self, node: Any) -> Any:
        path, kind = self._column(node.this)
        if not self._is_plain(node, "this", "expression"):
            raise NotConstantError
        prefix = self._constants.value(node.expression, kind)
        if isinstance(node, self._exp.Like):
            prefix, end = prefix[:-1], prefix[-1:]
            if end != "%" or "%" in prefix or "_" in prefix:
                raise NotConstantError
        return self._filters.StringStartsWith(path, prefix)

    def _value_or_null(self, node: Any, kind: IcebergType) -> Any:
        return None if isinstance(node, self._exp.Null) else self._constants.value(node, kind)

    def _column(self, node: Any) -> tuple[Path, IcebergType]:
        path = self._path_of(node)
        kind: IcebergType | None = self._schema.as_struct() if path else None
        for name in path or ():
            fields = kind.fields if isinstance(kind, StructType) else ()
            kind = next((each.field_type for each in fields if each.name == name), None)
        if path is None or kind is None:
            raise NotConstantError
        return path, kind

    def _is_plain(self, node: Any, *arguments: str) -> bool:
        """Whether a node has no other arguments, such as an escape character or a subquery."""
        return all(not value for key, value in node.args.items() if key not in arguments)


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression over the rows of one or two tables.

    Attributes:
        text: The text of the expression.
        tree: The expression as a tree of sqlglot.
    """

    text: str
    tree: Any

    @classmethod
    def parse(cls, text: str) -> RowExpression:
        """Parse an expression.

        Raises:
            InvalidArgumentError: If it can't be parsed, has a subquery, or is followed by a clause
                such as LIMIT.
        """
        sqlglot = sqlglot_module()
        try:
            tree = sqlglot.parse_one(f"{_SELECT}{text}", dialect=DIALECT)
        except sqlglot.errors.SqlglotError as error:
            raise unparsable(error) from error
        exp = sqlglot.expressions
        if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
            raise refused(f"the expression {text}")
        for clause in (key for key, value in tree.args.items() if value and key != "expressions"):
            raise refused(f"{_CLAUSES.get(clause, clause.upper())} in the expression {text}")
        if isinstance(tree.expressions[0], (exp.Alias, exp.Star)) or not _is_whole(text):
            raise refused(f"the expression {text}")
        if tree.expressions[0].find(exp.Query) is not None:
            raise refused(f"a subquery in {text}", "join it in a query first")
        return cls(text, tree.expressions[0])

    @property
    def columns(self) -> list[Any]:
        """The columns that the expression names."""
        exp = sqlglot_module("sqlglot.expressions")
        return list(self.tree.find_all(exp.Column))

    def without_qualifiers(self, is_qualifier: Callable[[str], bool]) -> str:
        """The text, in which `t.a` is `a` if `t` is a name of the table."""
        edits = []
        for column in self.columns:
            parts = column.parts
            if len(parts) > 1 and is_qualifier(parts[0].name):
                edits.append((parts[0].meta["start"], parts[1].meta["start"]))
        pieces, place = [], 0
        for start, end in sorted(edits):
            pieces.append(self.text[place : start - len(_SELECT)])
            place = end - len(_SELECT)
        return "".join([*pieces, self.text[place:]])


def _is_whole(text: str) -> bool:
    """Whether sqlglot has left out no word at the start or end of an expression."""
    words = words_of(text)
    return words[0].keyword != "ALL" and words[-1].text != ","


def conjuncts(node: Any) -> Iterator[Any]:
    """The conditions that must all be true for a condition to be true."""
    exp = sqlglot_module("sqlglot.expressions")
    if isinstance(node, exp.Paren):
        yield from conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def all_of(expressions: list[BooleanExpression]) -> BooleanExpression | None:
    """The expressions joined with AND; None if there are none."""
    result: BooleanExpression = AlwaysTrue()
    for each in expressions:
        result = And(result, each)
    return result if expressions else None
