"""The words of a SQL statement with their places in the text, and a cursor over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Literal

from icestream.errors import InvalidArgumentError, MissingExtraError

DIALECT = "spark"

Kind = Literal["word", "quoted", "string", "number", "symbol"]

_CLOSING = {"(": ")", "[": "]"}
_SHOWN = 60


def sqlglot_module(name: str = "sqlglot") -> ModuleType:
    """Import a module of sqlglot.

    Raises:
        MissingExtraError: If sqlglot is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlglot":
            raise
        raise MissingExtraError(
            "icestream.spark.sql needs sqlglot, which is not installed: "
            "pip install 'icestream[spark]'"
        ) from error


@dataclass(frozen=True, slots=True)
class Word:
    """A word, name, constant or symbol of a statement.

    Attributes:
        text: The text as it is in the statement. Names have their backticks.
        start: The index of the first character.
        end: The index after the last character.
        kind: What it is. A `"word"` is a keyword or a name without backticks.
    """

    text: str
    start: int
    end: int
    kind: Kind

    @property
    def keyword(self) -> str:
        """The word in upper case; empty for anything else."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """The name that the word stands for."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


@dataclass(frozen=True, slots=True)
class Name:
    """A name of one or several parts, such as `cat.db.t`, and its place in the text."""

    parts: tuple[str, ...]
    start: int
    end: int

    def __str__(self) -> str:
        return ".".join(self.parts)


def words_of(text: str) -> list[Word]:
    """The words of a statement, without comments and the semicolon at the end.

    Raises:
        InvalidArgumentError: If the text can't be divided into words, or has several statements.
    """
    sqlglot = sqlglot_module()
    try:
        tokens = sqlglot.tokenize(text, dialect=DIALECT)
    except sqlglot.errors.SqlglotError as error:
        raise unparsable(error) from error
    words = [word for token in tokens for word in _words(text, token.start, token.end + 1)]
    while words and words[-1].text == ";":
        words.pop()
    if not words:
        raise InvalidArgumentError("the SQL text is empty: give a statement")
    if any(word.text == ";" for word in words):
        raise InvalidArgumentError("the SQL text has several statements: run them one by one")
    return words


def unparsable(error: Exception) -> InvalidArgumentError:
    """The error for a text that sqlglot or Spark can't parse."""
    details = getattr(error, "errors", None)
    if details:
        first = details[0]
        near = f"{first.get('start_context') or ''}{first.get('highlight') or ''}"[-_SHOWN:]
        reason = f"{str(first.get('description', '')).rstrip('.')} near {near.strip()!r}"
    else:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
    return InvalidArgumentError(f"the SQL text can't be parsed: {reason}")


def _words(text: str, start: int, end: int) -> Iterator[Word]:
    """Divide a token into words: for sqlglot, `ORDER BY` is one token."""
    shown = text[start:end]
    kind = _kind(shown)
    if kind != "word":
        yield Word(shown, start, end, kind)
        return
    place = start
    for part in shown.split():
        place = text.index(part, place)
        yield Word(part, place, place + len(part), "word")
        place += len(part)


def _kind(text: str) -> Kind:
    first = text[:1]
    if first == "`":
        return "quoted"
    if text[-1:] in ("'", '"'):
        return "string"
    if first.isdigit() or (first == "." and text[1:2].isdigit()):
        return "number"
    return "word" if first.isalpha() or first == "_" else "symbol"


class Cursor:
    """Reads the words of a statement from left to right.

    Args:
        text: The statement.
        words: Its words.
        place: The index of the first word to read.
    """

    def __init__(self, text: str, words: list[Word], place: int = 0) -> None:
        self.text = text
        self.words = words
        self.place = place

    @property
    def start(self) -> int:
        """Where the next word starts in the text."""
        return self.words[self.place].start if not self.at_end else self.words[-1].end

    @property
    def at_end(self) -> bool:
        """Whether all words are read."""
        return self.place >= len(self.words)

    def keyword(self, ahead: int = 0) -> str:
        """The next word in upper case; empty at the end, and for names in backticks."""
        place = self.place + ahead
        return self.words[place].keyword if place < len(self.words) else ""

    def symbol(self, ahead: int = 0) -> str:
        """The text of the next word if it is not a word or a name."""
        place = self.place + ahead
        if place >= len(self.words) or self.words[place].kind not in ("symbol", "string", "number"):
            return ""
        return self.words[place].text

    def accept(self, *keywords: str) -> bool:
        """Read keywords if they come next."""
        if all(self.keyword(n) == keyword for n, keyword in enumerate(keywords)):
            self.place += len(keywords)
            return True
        return False

    def expect(self, *keywords: str) -> None:
        """Read keywords, which must come next."""
        if not self.accept(*keywords):
            raise self.unexpected(" ".join(keywords))

    def accept_symbol(self, symbol: str) -> bool:
        """Read a symbol if it comes next."""
        if self.symbol() == symbol:
            self.place += 1
            return True
        return False

    def read(self) -> Word:
        """Read one word, whatever it is."""
        if self.at_end:
            raise self.unexpected("more")
        self.place += 1
        return self.words[self.place - 1]

    def name(self) -> Name:
        """Read a name of one or several parts."""
        first = self._part()
        parts, last = [first.name], first
        while self.symbol() == ".":
            self.place += 1
            last = self._part()
            parts.append(last.name)
        return Name(tuple(parts), first.start, last.end)

    def _part(self) -> Word:
        if self.at_end or self.words[self.place].kind not in ("word", "quoted"):
            raise self.unexpected("a name")
        return self.read()

    def group(self) -> tuple[int, int]:
        """Read a group in parentheses. Returns the places of its contents in the words."""
        if self.symbol() != "(":
            raise self.unexpected("'('")
        first = self.place + 1
        self.skip()
        return first, self.place - 1

    def skip(self) -> None:
        """Read one word, or a whole group in brackets, or a whole CASE expression."""
        opening = self.read()
        closing = _CLOSING.get(opening.text) if opening.kind == "symbol" else None
        if closing is not None:
            while self.symbol() != closing:
                self.skip()
            self.place += 1
        elif opening.keyword == "CASE":
            while not self.accept("END"):
                self.skip()

    def until(self, *keywords: str) -> str:
        """Read up to one of some keywords outside of groups, or up to the end."""
        start = first = self.place
        while not self.at_end and self.keyword() not in keywords:
            self.skip()
        if self.place == first:
            raise self.unexpected("an expression")
        return self.between(start, self.place)

    def between(self, first: int, last: int) -> str:
        """The text of the words from `first` up to, but not including, `last`."""
        if first >= last:
            return ""
        return self.text[self.words[first].start : self.words[last - 1].end]

    def rest(self) -> str:
        """Read the rest of the statement."""
        start, self.place = self.place, len(self.words)
        return self.between(start, self.place)

    def unexpected(self, wanted: str) -> InvalidArgumentError:
        """The error for something else than what must come next."""
        actual = "its end" if self.at_end else repr(self.words[self.place].text)
        return InvalidArgumentError(
            f"the SQL text can't be parsed: it has {actual} at character {self.start + 1} instead "
            f"of {wanted}"
        )


def refused(construct: str, instead: str = "") -> InvalidArgumentError:
    """The error for a construct that `icestream.spark.sql` does not support."""
    advice = f": {instead}" if instead else ""
    return InvalidArgumentError(f"icestream.spark.sql does not support {construct}{advice}")
