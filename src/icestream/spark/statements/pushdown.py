"""The filters of a query that the read of a table may apply.

Spark applies all filters again, so a filter is pushed only if rows that it drops can't change the
result. Those are conditions of WHERE and ON that compare a column with constants, on tables whose
rows an outer join does not complete with nulls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.expressions import BooleanExpression

from icestream.spark.statements.conditions import (
    Conditions,
    NotExactError,
    Path,
    all_of,
    conjuncts,
)
from icestream.spark.statements.constants import Constants
from icestream.spark.statements.sources import Source, parts_of
from icestream.spark.statements.words import sqlglot_module

_INNER = ("", "INNER", "CROSS")
_OUTER = ("", "OUTER")
_HALF = ("SEMI", "ANTI")


def pushed_filter(
    source: Source, sources: Sequence[Source], constants: Constants
) -> BooleanExpression | None:
    """The filter that the read of a table may apply.

    Args:
        source: The table.
        sources: All Iceberg tables of the query.
        constants: Reads the constants of the query.
    """
    select = source.select
    if select is None or source.node.args.get("sample") or not source.columns:
        return None
    paths = _Paths(source, select, sources)
    conditions = Conditions(source.schema, constants, paths)
    expressions = []
    for node in _filters(source, select):
        try:
            expressions.append(conditions.translate(node))
        except NotExactError:
            continue
    return all_of(expressions)


def _filters(source: Source, select: Any) -> Iterator[Any]:
    """The conditions that rows of the table must fulfil to have an effect."""
    joins = list(select.args.get("joins") or ())
    own = next((n for n, join in enumerate(joins) if join.this is source.node), None)
    where = select.args.get("where")
    if where is not None and _survives(joins, own, len(joins)):
        yield from conjuncts(where.this)
    for number, join in enumerate(joins):
        on = join.args.get("on")
        if on is None or (own is not None and own > number):
            continue
        side, kind = join.side.upper(), join.kind.upper()
        if side == "" and kind in _INNER:
            if _survives(joins, own, number + 1):
                yield from conjuncts(on)
        elif number == own and (
            (side == "LEFT" and kind in _OUTER) or (side in ("", "LEFT") and kind in _HALF)
        ):
            yield from conjuncts(on)


def _survives(joins: list[Any], own: int | None, count: int) -> bool:
    """Whether the first joins keep the table's values, so that a filter can run before them."""
    for number, join in enumerate(joins[:count]):
        side, kind = join.side.upper(), join.kind.upper()
        if number == own:
            if not ((side == "" and kind in _INNER) or (side == "RIGHT" and kind in _OUTER)):
                return False
        elif own is None or number > own:
            is_known = kind in (*_INNER, *_OUTER, *_HALF)
            if side in ("RIGHT", "FULL") or not is_known:
                return False
    return True


class _Paths:
    """The paths of a table's columns in a SELECT.

    A name counts only if no other table or alias of the SELECT can have it.
    """

    def __init__(self, source: Source, select: Any, sources: Sequence[Source]) -> None:
        exp = sqlglot_module("sqlglot.expressions")
        holders = [select.args.get("from_") or select.args.get("from")]
        holders += [*(select.args.get("joins") or ()), *(select.args.get("laterals") or ())]
        nodes = [each.this if isinstance(each, (exp.From, exp.Join)) else each for each in holders]
        by_node = {id(each.node): each for each in sources}
        others = [node for node in nodes if node is not None and node is not source.node]
        self._source = source
        self._known = [by_node[id(node)] for node in others if id(node) in by_node]
        self._has_unknown = len(self._known) < len(others) or any(
            not each.columns or each.select is None for each in self._known
        )
        self._aliases = {source.folded(node.alias_or_name) for node in others}
        self._exp = exp

    def __call__(self, node: Any) -> Path | None:
        if not isinstance(node, self._exp.Column) or isinstance(node.this, self._exp.Star):
            return None
        source, parts = self._source, parts_of(node)
        if source.folded(source.alias) in self._aliases:
            return None
        first = source.folded(parts[0])
        others = {name for each in self._known for name in each.columns}
        if len(parts) > 1 and source.is_called(parts[0]):
            if first in source.columns or first in others:
                return None
            parts = parts[1:]
        elif (
            self._has_unknown
            or first in others
            or first in self._aliases
            or source.is_called(parts[0])
        ):
            return None
        name = source.columns.get(source.folded(parts[0]))
        return None if name is None else (name, *parts[1:])
