"""`${NAME}` and `${NAME:-default}` in texts; `$$` is a dollar sign."""

from __future__ import annotations

import re
from collections.abc import Mapping

from icestream.errors import InvalidArgumentError
from icestream.pipeline.choice import suggestion

_VARIABLE = re.compile(r"\$(?:\$|\{([^{}]*)\})")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Put the values of variables into a text.

    Args:
        text: The text. A value is put in as it is: what looks like a variable in it stays.
        variables: Their values.

    Raises:
        InvalidArgumentError: If one has no value and no default, or is not written right.
    """

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        parts = _NAME.fullmatch(found[1])
        if parts is None:
            raise InvalidArgumentError(
                f"{found[0]!r} is no variable: write ${{NAME}} or ${{NAME:-default}}, and $$ for a "
                "dollar sign"
            )
        name, default = parts.groups()
        told = variables.get(name)
        if told is None or (not told and default is not None):
            if default is None:
                raise InvalidArgumentError(_missing(name, variables))
            return default
        return told

    return _VARIABLE.sub(value, text)


def _missing(name: str, variables: Mapping[str, str]) -> str:
    near = suggestion(name, tuple(variables))
    hint = f" ({near})" if near.startswith("did you mean") else ""
    return (
        f"the variable {name!r} is not set{hint}: set it in the environment, or give a default as "
        f"in ${{{name}:-default}}"
    )
