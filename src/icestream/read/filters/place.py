"""Errors in a filter: one line that ends with the place."""

from __future__ import annotations

from icestream.errors import InvalidArgumentError

_SHOWN = 100


class FilterTextError(Exception):
    """A mistake at a place of a filter, before the message has a subject.

    Attributes:
        position: The index of the character, from 0.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def mistake_in(
    kind: type[InvalidArgumentError], message: str, text: str | None, position: int | None
) -> InvalidArgumentError:
    """An error whose message ends with the place in the text, if the filter is text.

    Args:
        kind: The class of the error.
        message: What is wrong, and what to write.
        text: The filter.
        position: The index of the character, from 0.
    """
    message = " ".join(message.split())
    if text is None or position is None:
        return kind(message)
    return kind(f"{message} ({_place(text, position)})", text=text, position=position)


def _place(text: str, position: int) -> str:
    start = 0 if len(text) <= _SHOWN else max(0, position - _SHOWN // 2)
    shown = text[start : start + _SHOWN]
    before = "..." if start else ""
    after = "..." if start + _SHOWN < len(text) else ""
    return f"character {position + 1} of {before + shown + after!r}"
