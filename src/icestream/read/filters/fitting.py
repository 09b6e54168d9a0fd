"""Check a filter against a schema: its columns exist, and they can store its constants."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import AboveMax, Literal, literal
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, bind, rewrite_not, visit
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StringType, StructType

from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.read.filters.literals import BEYOND, fitted
from icestream.read.filters.parser import Condition, ParsedFilter, parse
from icestream.read.filters.place import FilterTextError, mistake_in

_LISTED = 20
_NOT_NULL: Callable[..., BooleanExpression] = NotNull  # mypy sees PyIceberg's fields only


def parse_filter(where: object, *, label: str = "the filter") -> ParsedFilter | BooleanExpression:
    """Parse a filter, if it is text.

    Args:
        where: The filter.
        label: The subject of messages.

    Raises:
        InvalidArgumentError: If it can't be parsed, or is neither text nor an expression.
    """
    if isinstance(where, BooleanExpression):
        return where
    if not isinstance(where, str):
        raise InvalidArgumentError(
            f"where is a {type(where).__name__}: give a string or a PyIceberg expression"
        )
    try:
        return parse(where)
    except FilterTextError as error:
        message = f"{label} can't be parsed: {error}"
        raise mistake_in(InvalidArgumentError, message, where, error.position) from error


def fit_filter(
    where: str | BooleanExpression,
    schema: Schema,
    case_sensitive: bool = True,
    *,
    label: str = "the filter",
) -> BooleanExpression:
    """Parse a filter, and convert its constants to values that its columns can store.

    Args:
        where: The filter.
        schema: The columns.
        case_sensitive: Whether the case of column names matters.
        label: The subject of messages.

    Returns:
        An expression that binds to the schema, without `not`. Constants out of range are left out
        of sets, and other comparisons with them become comparisons with the ends of the range.

    Raises:
        UnknownColumnError: If a column does not exist.
        InvalidArgumentError: If the filter can't be parsed, or a constant does not fit its column.
    """
    parsed = parse_filter(where, label=label)
    fitting = _Fitting(schema, case_sensitive, label)
    if isinstance(parsed, ParsedFilter):
        for condition in parsed.conditions:
            fitting.check(condition, parsed.text)
        parsed = parsed.expression
    # Without `not`, a comparison that no value fulfils can become false. Nulls stay out.
    row_filter: BooleanExpression = visit(rewrite_not(parsed), fitting)
    try:
        bind(schema, row_filter, case_sensitive)
    except (ValueError, TypeError, ArithmeticError) as error:
        reason = " ".join(str(error).split())
        raise InvalidArgumentError(f"{label} does not fit: {reason}") from error
    return row_filter


def no_column(name: str, known: Sequence[str]) -> str:
    """Say that a column does not exist, and name the nearest one or those that exist."""
    return f"there is no column {name!r}: {near_column(name, known)}"


def near_column(name: str, known: Sequence[str]) -> str:
    """A hint that names the nearest column, or those that exist."""
    exact = [each for each in known if each.lower() == name.lower()]
    near = exact or difflib.get_close_matches(name.strip("'\""), known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"it has {', '.join(known[:_LISTED]) or 'no columns'}"


# By whether the constant is above the range, or below it.
_BELOW = {True: LessThanOrEqual, False: LessThan}
_ABOVE = {True: GreaterThan, False: GreaterThanOrEqual}


def _beyond(predicate: LiteralPredicate, end: Literal[Any], kind: IcebergType) -> BooleanExpression:
    """A comparison with a constant out of range, as one with the end of the range.

    PyIceberg makes it true or false for all rows, even for those with null or infinity.
    """
    if isinstance(predicate, EqualTo):
        return AlwaysFalse()
    if isinstance(predicate, NotEqualTo):
        return _NOT_NULL(predicate.term)
    kinds = _BELOW if isinstance(predicate, (LessThan, LessThanOrEqual)) else _ABOVE
    make: Callable[..., BooleanExpression] = kinds[isinstance(end, AboveMax)]
    return make(predicate.term, literal(end.value).to(kind))


class _Fitting(BooleanExpressionVisitor[BooleanExpression]):
    """Converts the constants of an expression."""

    def __init__(self, schema: Schema, case_sensitive: bool, label: str) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._label = label

    def check(self, condition: Condition, text: str) -> None:
        """Check one comparison of a text. Errors name the place."""
        kind = self._kind(condition.column, text, condition.position)
        if condition.pattern and not isinstance(kind, StringType):
            message = f"{condition.column!r} is not a string, and only strings are compared by like"
            raise self._unfit(message, text, condition.position)
        for constant in condition.constants:
            self._fit(constant.literal, kind, condition.column, text, constant.position)

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return Not(child_result)

    def visit_and(
        self, left_result: BooleanExpression, right_result: BooleanExpression
    ) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(
        self, left_result: BooleanExpression, right_result: BooleanExpression
    ) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        return predicate

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        name: str = predicate.term.name  # type: ignore[attr-defined]
        kind = self._kind(name)
        make: Callable[..., BooleanExpression] = type(predicate)
        if isinstance(predicate, (StartsWith, NotStartsWith)):
            return predicate
        if isinstance(predicate, LiteralPredicate):
            value = self._fit(predicate.literal, kind, name)
            if isinstance(end := value.to(kind), BEYOND):
                return _beyond(predicate, end, kind)
            return make(predicate.term, value)
        if isinstance(predicate, SetPredicate):
            values = [self._fit(literal, kind, name) for literal in predicate.literals]
            possible = [value for value in values if not isinstance(value.to(kind), BEYOND)]
            if values and not possible and isinstance(predicate, NotIn):
                return _NOT_NULL(predicate.term)
            return make(predicate.term, possible)
        if isinstance(predicate, (IsNull, NotNull)):
            return self._null_check(predicate, name)
        return self._unless_certain(predicate)

    def _null_check(self, predicate: IsNull | NotNull, name: str) -> BooleanExpression:
        """The check of a field. A required one is null where an optional struct around it is."""
        parts, checks = name.split("."), list[BooleanExpression]()
        for end in range(1, len(parts)):
            above = ".".join(parts[:end])
            try:
                field = self._schema.find_field(above, self._case_sensitive)
            except ValueError:  # part of a name that has a dot
                continue
            if not field.required and isinstance(field.field_type, StructType):
                make: Callable[..., BooleanExpression] = type(predicate)
                checks.append(make(Reference(above)))
        own = self._unless_certain(predicate)
        if own is predicate or not checks:
            return own
        return Or(own, *checks) if isinstance(predicate, IsNull) else And(own, *checks)

    def _unless_certain(self, predicate: UnboundPredicate) -> BooleanExpression:
        """The predicate; true or false if it is that for all rows.

        Such a predicate names a column that is not read for the filter.
        """
        bound: BooleanExpression = predicate.bind(self._schema, self._case_sensitive)
        return bound if isinstance(bound, (AlwaysTrue, AlwaysFalse)) else predicate

    def _kind(self, name: str, text: str | None = None, position: int | None = None) -> IcebergType:
        try:
            field = self._schema.find_field(name, self._case_sensitive)
        except ValueError as error:
            message = f"{self._label}: {no_column(name, self._schema.column_names)}"
            raise mistake_in(UnknownColumnError, message, text, position) from error
        parts = name.split(".")
        for end in range(1, len(parts)):
            try:
                above = self._schema.find_field(".".join(parts[:end]), self._case_sensitive)
            except ValueError:  # part of a name that has a dot
                continue
            if isinstance(above.field_type, (ListType, MapType)):
                container = "list" if isinstance(above.field_type, ListType) else "map"
                message = f"{name!r} is inside a {container}, which a filter can't look into"
                raise self._unfit(message, text, position) from None
        return field.field_type

    def _fit(
        self,
        literal: Literal[Any],
        kind: IcebergType,
        column: str,
        text: str | None = None,
        position: int | None = None,
    ) -> Literal[Any]:
        try:
            return fitted(literal, kind, column)
        except ValueError as error:
            raise self._unfit(str(error), text, position) from error

    def _unfit(self, message: str, text: str | None, position: int | None) -> InvalidArgumentError:
        message = f"{self._label} does not fit: {message}"
        return mistake_in(InvalidArgumentError, message, text, position)
