"""The texts that people read, and the phrases that make them hard to read."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_QUANTITIES = "bytes|rows|files|batches|memory|columns|streams|tasks|workers|times|records|lines"

# Each phrase with what to write instead.
PHRASES = {
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b)": "is not a ...",
    r"(?:^|[.:;?]\s+|\|\s*)Of (?!course\b)": "begin with the subject",
    rf"\bThe most\b|\bthe most (?:{_QUANTITIES})\b": "maximum number of ...",
    r"\b(?:what|all that) there is\b|\bwhat is there\b": "name the things",
    r"\bas of `|; likewise\b": "repeat the sentence, or link it",
    r"\b[Mm]end(?:s|ed|ing)?\b": "fix, repair",
    r"\bspread out\b": "expand, distribute",
    r"\b[Ww]hat becomes of\b": "what to do with ...",
    r"\bas often as needed\b": "repeatable",
    r"\bcome(?:s)? twice\b|\bwould come back\b": "is duplicated, would reappear",
    r"\b(?:try|tries) at once one gets through\b": "one succeeds",
    r"\b[Bb]ound what you\b": "limit ...",
    r"\b[Bb]eside others\b": "comparison, next to others",
    r"\bwhere `[^`]+` stands\b": "replace `...` with ...",
    r"\b(?:does|do|did) not tell\b": "does not record, does not say",
    r"\bas others changed\b": "changed concurrently",
    r"\bwhat a filter says\b": "the rows that match a filter",
    r"\bSays of (?:a|an|the|most)\b": "say what it is",
    r"\bS\d\.\d+\b": "no requirement numbers",
}
# Names that say what was done and not what they are.
PARTICIPLES = frozenset({"told", "asked", "made", "found"})


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of text with the place where it is written."""

    place: str
    text: str


def complaints(text: Text) -> Iterator[str]:
    """Every phrase of a text that should be written in another way."""
    words = re.sub(r"[ \t]*\n[ \t]*(?=\S)", " ", text.text)
    for pattern, instead in PHRASES.items():
        for match in re.finditer(pattern, words, re.MULTILINE):
            around = words[max(match.start() - 30, 0) : match.end() + 30].strip()
            yield f"{text.place}: ...{around}... ({instead})"


def texts_of(path: Path) -> Iterator[Text]:
    """The texts in a file: paragraphs of a document; strings and comments of a module."""
    name = path.relative_to(REPOSITORY).as_posix()
    source = path.read_text()
    if path.suffix == ".py":
        yield from _texts_of_module(name, source)
        return
    line = 1
    for paragraph in re.split(r"(\n(?:\s*\n)+|\n(?=\s*[|*-] ))", source):
        yield Text(f"{name}:{line}", paragraph)
        line += paragraph.count("\n")


def participles_of(path: Path) -> Iterator[str]:
    """Where a module gives one of `PARTICIPLES` to a variable or an argument."""
    name = path.relative_to(REPOSITORY).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            variable = node.id
        elif isinstance(node, ast.arg):
            variable = node.arg
        else:
            continue
        if variable.strip("_") in PARTICIPLES:
            yield f"{name}:{node.lineno}: {variable}"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value.split()) > 2


def _texts_of_module(name: str, source: str) -> Iterator[Text]:
    inside: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield Text(f"{name}:{node.lineno}", "".join(str(part) for part in parts))
        elif isinstance(node, ast.Constant) and id(node) not in inside and _is_text(node.value):
            yield Text(f"{name}:{node.lineno}", str(node.value))
    comment, first, last = "", 0, 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1:
            yield Text(f"{name}:{first}", comment)
            comment, first = "", token.start[0]
        comment, last = f"{comment} {token.string.lstrip('# ')}", token.start[0]
    yield Text(f"{name}:{first}", comment)
