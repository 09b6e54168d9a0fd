"""JSON arrays, and objects over several lines, as lines with one object each."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator

from icestream.catalogs.redaction import redact
from icestream.errors import SourceError
from icestream.memory.budget import format_bytes, over_limit

_READ_BYTES = 1 << 18
_BLOCK_CHARACTERS = 1 << 20
# Python's objects take about this many times the bytes of their text.
OBJECT_COST = 16
_NEAR_END = 16  # an error so close to the end of the text may be due to missing text
_SPACE = " \t\r\n"
_BETWEEN = re.compile(r"[ \t\r\n,]*")


def holds_documents(text: bytes) -> bool:
    """Whether a file with this beginning is an array of objects, or has objects over several lines.

    A line that is an object shows that each line is one.
    """
    start = text.lstrip()
    if start.startswith(b"["):
        return start[1:].lstrip()[:1] in (b"{", b"]", b"")
    first, newline, _ = start.partition(b"\n")
    if not start.startswith(b"{") or not newline:
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        pass
    else:
        return False
    try:
        value, end = json.JSONDecoder().raw_decode(start.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and end > len(first.decode("utf-8", "replace"))


def document_lines(
    first: bytes, read: Callable[[int], bytes], *, path: str, most_bytes: int
) -> Iterator[bytes]:
    """Blocks of lines; each line is one object of the file.

    Args:
        first: What was read of the file so far.
        read: Reads on.
        path: The file, for messages.
        most_bytes: Maximum size of an object.

    Raises:
        SourceError: If the file is not valid JSON, or has values that are not objects.
        MemoryBudgetError: If an object is too large.

    Memory: `OBJECT_COST` times the largest object, and two blocks of 1 MB.
    """
    lines: list[str] = []
    size = 0
    for line in _Documents(first, read, path, most_bytes).objects():
        lines.append(line)
        size += len(line)
        if size >= _BLOCK_CHARACTERS:
            yield "".join(lines).encode()
            lines, size = [], 0
    if lines:
        yield "".join(lines).encode()


def _match_end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return start if match is None else match.end()


class _Documents:
    """Cuts a text into JSON objects."""

    def __init__(
        self, first: bytes, read: Callable[[int], bytes], path: str, most_bytes: int
    ) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._read = read
        self._path = path
        self._most = most_bytes
        self._text = self._decoder.decode(first)
        self._is_read = not first
        self._number = 0
        self._at = 0

    def objects(self) -> Iterator[str]:
        """Each object as one line."""
        scan = json.JSONDecoder().raw_decode
        in_array = self._next() == "["
        self._at = 1 if in_array else 0
        while True:
            at = self._at = _match_end(_BETWEEN, self._text, self._at)
            if at >= len(self._text):
                if self._more():
                    continue
                if in_array:
                    raise self._invalid("the array is not closed")
                return
            if in_array and self._text[at] == "]":
                self._at += 1
                self._end()
                return
            if self._text[at] != "{":
                raise self._invalid("it is not an object")
            try:
                _, end = scan(self._text, at)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error) or not self._more():
                    raise self._invalid(error.msg) from error
                continue
            except RecursionError as error:
                raise self._invalid("it is nested too deeply") from error
            self._number += 1
            # A line break in a string is always escaped, so these are between values.
            yield self._text[at:end].replace("\r", " ").replace("\n", " ") + "\n"
            self._at = end

    def _next(self) -> str:
        """The next character that is not space; empty at the end."""
        self._text, self._at = self._text[self._at :].lstrip(_SPACE), 0
        while not self._text and self._more():
            self._text = self._text.lstrip(_SPACE)
        return self._text[:1]

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        near_end = error.pos >= len(self._text) - _NEAR_END
        return near_end or error.msg.startswith(("Unterminated string", "Invalid \\"))

    def _more(self) -> bool:
        """Drop the text that was used, and read as much again as is left."""
        self._text, self._at = self._text[self._at :], 0
        if self._is_read:
            return False
        if len(self._text) > self._most:
            raise over_limit(
                f"object {self._number + 1} of {redact(self._path)!r} has more than "
                f"{format_bytes(self._most)}",
                needed_bytes=4 * len(self._text) * OBJECT_COST,
                limit_bytes=self._most * OBJECT_COST,
                otherwise="write it as JSON lines",
            )
        read = self._read(max(_READ_BYTES, len(self._text)))
        self._is_read = not read
        self._text += self._decoder.decode(read, final=self._is_read)
        return not self._is_read

    def _end(self) -> None:
        """Check that nothing but space follows an array."""
        if self._next():
            raise self._invalid("text follows the array")

    def _invalid(self, reason: str) -> SourceError:
        return SourceError(
            f"object {self._number + 1} of {redact(self._path)!r} can't be read: {reason}. Fix it, "
            "or write the file as JSON lines"
        )
