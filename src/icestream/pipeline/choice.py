"""Words out of a closed set; a wrong one is refused with the nearest that there is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from icestream.errors import InvalidArgumentError


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        InvalidArgumentError: Naming the argument, and what there is instead.
    """
    known = tuple(choices)
    if isinstance(value, str) and value in known:
        return
    raise InvalidArgumentError(f"{name} is {value!r}: {suggestion(str(value), known)}")


def check_keys(where: str, keys: Iterable[object], known: Iterable[str]) -> None:
    """Refuse keys of a mapping that mean nothing.

    Args:
        where: What the mapping is, for the message.
        keys: Its keys.
        known: Those that there are.

    Raises:
        InvalidArgumentError: Naming the first that is unknown.
    """
    choices = tuple(known)
    for key in keys:
        if key not in choices:
            raise InvalidArgumentError(
                f"{where} has {key!r}, which is unknown: {suggestion(str(key), choices)}"
            )


def suggestion(value: str, known: tuple[str, ...]) -> str:
    """What may have been meant, or all that there is."""
    near = difflib.get_close_matches(value, known, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"give one of {', '.join(repr(each) for each in known)}"
