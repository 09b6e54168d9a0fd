"""Table properties that commits go by."""

from __future__ import annotations

from collections.abc import Mapping

from icestream.errors import InvalidArgumentError


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The value of a property; 0 if it is below.

    Raises:
        InvalidArgumentError: If it is no number.
    """
    text = properties.get(name, default)
    try:
        return max(0, int(text))
    except ValueError as error:
        raise InvalidArgumentError(
            f"table property {name} is {text!r}: it must be a whole number"
        ) from error
