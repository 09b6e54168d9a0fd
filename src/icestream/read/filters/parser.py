"""Parse a filter such as `price > 10 and country in ('NO', 'SE')`.

The grammar is PyIceberg's, and more: `not between`, exponents, `date '2024-01-31'`, names in
backticks, dots in quoted names, letters of any language in names, and `true` and `false` inside
larger conditions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import (
    BooleanLiteral,
    DecimalLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
)

from icestream.read.filters import mistakes
from icestream.read.filters.place import FilterTextError
from icestream.read.filters.tokens import Token, tokens_of

_COMPARISONS: dict[str, Callable[..., BooleanExpression]] = {
    "=": EqualTo,
    "==": EqualTo,
    "!=": NotEqualTo,
    "<>": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_CHECKS: dict[tuple[str, bool], Callable[..., BooleanExpression]] = {
    ("null", False): IsNull,
    ("null", True): NotNull,
    ("nan", False): IsNaN,
    ("nan", True): NotNaN,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BOOLEANS = ("true", "false")
_TYPED = ("date", "time", "timestamp", "timestamptz")
_DAY = re.compile(r"[-+]?\d{4,9}-\d{1,2}-\d{1,2}([T ].*)?", re.IGNORECASE)
_MAX_DEPTH = 100
_MAX_DIGITS = 400


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of a filter, and its place."""

    literal: Literal[Any]
    position: int


@dataclass(frozen=True, slots=True)
class Condition:
    """The column and the constants of one comparison, with their places.

    Attributes:
        column: The name. Names of nested columns are joined with dots.
        position: The place of the name.
        constants: The constants that the column is compared with.
        pattern: Whether the comparison is `like`.
    """

    column: str
    position: int
    constants: tuple[Constant, ...] = ()
    pattern: bool = False


@dataclass(frozen=True, slots=True)
class ParsedFilter:
    """A filter that was text.

    Attributes:
        text: The text.
        expression: What it means.
        conditions: Its comparisons, in the order of the text.
    """

    text: str
    expression: BooleanExpression
    conditions: tuple[Condition, ...]


def parse(text: str) -> ParsedFilter:
    """Parse a filter.

    Raises:
        FilterTextError: If it can't be parsed.
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._at = 0
        self._depth = 0
        self._conditions: list[Condition] = []

    def parse(self) -> ParsedFilter:
        if self._token.kind == "end":
            raise mistakes.empty(self._token)
        expression = self._or()
        if self._at < len(self._tokens) - 1:
            raise mistakes.after_condition(self._tokens, self._at)
        return ParsedFilter(self._text, expression, tuple(self._conditions))

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, steps: int = 1) -> Token:
        return self._tokens[min(self._at + steps, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._token
        self._at += token.kind != "end"
        return token

    def _takes(self, text: str) -> bool:
        """Take the next token, if it is this word or mark."""
        token = self._token
        matches = token.word == text or (token.kind == "mark" and token.text == text)
        self._at += matches
        return matches

    def _or(self) -> BooleanExpression:
        parts = [self._and()]
        while self._takes("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(*parts)

    def _and(self) -> BooleanExpression:
        parts = [self._not()]
        while self._takes("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(*parts)

    def _not(self) -> BooleanExpression:
        opening = self._token
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FilterTextError(f"it is nested more than {_MAX_DEPTH} deep", opening.position)
        expression: BooleanExpression
        if self._takes("not"):
            expression = Not(self._not())
        elif self._takes("("):
            expression = self._or()
            if not self._takes(")"):
                raise mistakes.not_closed(self._tokens, self._at, opening)
        else:
            expression = self._condition()
        self._depth -= 1
        return expression

    def _condition(self) -> BooleanExpression:
        token = self._token
        if token.word in _BOOLEANS and not self._is_column():
            if self._peek().kind != "operator":
                self._take()
                return AlwaysTrue() if token.word == "true" else AlwaysFalse()
            return self._mirrored()
        if token.kind in ("string", "number") or self._is_typed():
            return self._mirrored()
        if token.kind not in ("word", "quoted"):
            raise mistakes.no_condition(self._tokens, self._at)
        column, place = self._column()
        reference = Reference(column)
        operator = self._token
        if operator.kind == "operator":
            make = self._comparison()
            constant = self._constant()
            self._add(column, place, constant)
            return make(reference, constant.literal)
        if self._takes("is"):
            self._add(column, place)
            return self._is(reference)
        negated = self._takes("not")
        for word, read in (("in", self._in), ("between", self._between), ("like", self._like)):
            if self._takes(word):
                return read(reference, place, negated)
        raise mistakes.no_operator(self._tokens, self._at, column, negated)

    def _is_column(self) -> bool:
        """Whether `true` or `false` is the name of a column here."""
        after, then = self._peek(), self._peek(2)
        if after.kind == "operator":
            return then.word in _BOOLEANS or then.kind in ("string", "number")
        return after.word in ("is", "in", "not", "between", "like") or after.text == "."

    def _is_typed(self) -> bool:
        return self._token.word in _TYPED and self._peek().kind == "string"

    def _column(self) -> tuple[str, int]:
        """Read the name of a column, and return it with its position."""
        start = self._token.position
        parts = [self._take().name]
        while self._takes("."):
            if self._token.kind not in ("word", "quoted"):
                raise mistakes.no_field(self._token, ".".join(parts))
            parts.append(self._take().name)
        return ".".join(parts), start

    def _comparison(self) -> Callable[..., BooleanExpression]:
        token = self._take()
        if token.text not in _COMPARISONS:
            raise mistakes.no_comparison(token)
        return _COMPARISONS[token.text]

    def _mirrored(self) -> BooleanExpression:
        """A comparison with the constant on the left."""
        constant = self._constant()
        operator = self._token
        if operator.kind != "operator":
            raise mistakes.constant_first(self._tokens, self._at, constant.position)
        self._comparison()
        if self._token.kind not in ("word", "quoted"):
            raise mistakes.no_column(self._tokens, self._at)
        column, place = self._column()
        self._add(column, place, constant)
        mirrored = _MIRRORED.get(operator.text, operator.text)
        return _COMPARISONS[mirrored](Reference(column), constant.literal)

    def _is(self, reference: Reference) -> BooleanExpression:
        negated = self._takes("not")
        make = _CHECKS.get((self._token.word, negated))
        if make is None:
            raise mistakes.after_is(self._token)
        self._take()
        return make(reference)

    def _in(self, reference: Reference, place: int, negated: bool) -> BooleanExpression:
        if not self._takes("("):
            raise mistakes.no_list(self._token)
        constants = [self._constant()]
        while self._takes(","):
            constants.append(self._constant())
        if not self._takes(")"):
            raise mistakes.in_list(self._token)
        self._add(reference.name, place, *constants)
        make: Callable[..., BooleanExpression] = NotIn if negated else In
        return make(reference, [constant.literal for constant in constants])

    def _between(self, reference: Reference, place: int, negated: bool) -> BooleanExpression:
        low = self._constant()
        if not self._takes("and"):
            raise mistakes.no_upper_end(self._token)
        high = self._constant()
        self._add(reference.name, place, low, high)
        make_low: Callable[..., BooleanExpression] = LessThan if negated else GreaterThanOrEqual
        make_high: Callable[..., BooleanExpression] = GreaterThan if negated else LessThanOrEqual
        ends = (make_low(reference, low.literal), make_high(reference, high.literal))
        return Or(*ends) if negated else And(*ends)

    def _like(self, reference: Reference, place: int, negated: bool) -> BooleanExpression:
        token = self._take()
        if token.kind != "string":
            raise mistakes.no_pattern(token)
        pattern = token.string
        wildcard = re.search(r"(?<!\\)%", pattern)
        if wildcard is not None and wildcard.end() != len(pattern):
            raise mistakes.pattern(token)
        make: Callable[..., BooleanExpression] = EqualTo if wildcard is None else StartsWith
        text = pattern if wildcard is None else pattern[:-1]
        literal = StringLiteral(text.replace("\\%", "%"))
        constant = Constant(literal, token.position)
        self._conditions.append(Condition(reference.name, place, (constant,), pattern=True))
        expression = make(reference, literal)
        return ~expression if negated else expression

    def _constant(self) -> Constant:
        start = self._token
        if self._is_typed():
            typed = self._take().word
            token = self._take()
            if typed != "time" and not _DAY.fullmatch(token.string):
                raise mistakes.no_date(token)
            return Constant(StringLiteral(token.string), token.position)
        if start.kind == "string":
            return Constant(StringLiteral(self._take().string), start.position)
        if start.kind == "number":
            return Constant(_number(self._take()), start.position)
        if start.word in _BOOLEANS and self._peek().text not in (".", "("):
            return Constant(BooleanLiteral(self._take().word == "true"), start.position)
        raise mistakes.no_constant(self._tokens, self._at)

    def _add(self, column: str, place: int, *constants: Constant) -> None:
        self._conditions.append(Condition(column, place, constants))


def _number(token: Token) -> Literal[Any]:
    if token.text.lstrip("+-").isdigit():
        if len(token.text) > _MAX_DIGITS:
            raise mistakes.too_long(token)
        return LongLiteral(int(token.text))
    value = Decimal(token.text)
    if len(token.text) > _MAX_DIGITS or abs(value.adjusted()) > _MAX_DIGITS:
        raise mistakes.too_long(token)
    return DecimalLiteral(Decimal(format(value, "f")))
