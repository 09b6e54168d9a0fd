"""The words, constants and operators of a filter, with their positions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

from icestream.read.filters.place import FilterTextError

Kind = Literal["word", "quoted", "string", "number", "operator", "mark", "other", "end"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<number>[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[^\W\d][\w$]*)
    # A backslash keeps a quote inside the text, as in PyIceberg. If that leaves the text without
    # an end, a backslash is a character like others.
    | (?P<string>'(?:[^'\\]|''|\\.)*' | '(?:[^']|'')*')
    | (?P<quoted>"(?:\\"|""|[^"])*" | `(?:``|[^`])*`)
    | (?P<operator><=>|===|<=|>=|<>|!=|==|=<|=>|&&|\|\||[=<>!])
    | (?P<mark>[(),.])
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A part of a filter.

    Attributes:
        kind: What it is.
        text: As it is written.
        position: The index of its first character.
    """

    kind: Kind
    text: str
    position: int

    @property
    def word(self) -> str:
        """An unquoted word in lower case. For other tokens it is empty."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """The name of a column, without its quotes."""
        if self.kind != "quoted":
            return self.text
        inner = self.text[1:-1]
        if self.text[0] == "`":
            return inner.replace("``", "`")
        # PyIceberg reads every backslash in a quoted name as a quote.
        return inner.replace('\\"', '"').replace('""', '"').replace("\\", '"')

    @property
    def string(self) -> str:
        """The value of a text constant."""
        return self.text[1:-1].replace("''", "'")


def tokens_of(text: str) -> list[Token]:
    """Cut a filter into tokens. The last one is the end.

    Raises:
        FilterTextError: If a quote is not closed.
    """
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = cast(Kind, match.lastgroup)
        if kind == "other" and match[0] in "'\"`":
            raise FilterTextError(
                f"the quote {match[0]} is not closed: write {match[0]} again at the end, and "
                "twice for a quote inside",
                match.start(),
            )
        if match.lastgroup != "space":
            tokens.append(Token(kind, match[0], match.start()))
    return [*tokens, Token("end", "", len(text.rstrip()))]
