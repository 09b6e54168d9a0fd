"""Warnings for public names that a later version removes.

```python
@deprecated(since="0.4", removed_in="0.6", instead="icestream.scan")
def read_table(table: Table) -> Scan: ...
```

The policy is in `docs/versioning.md`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_CALLER = 2


def deprecated(
    *, since: str, removed_in: str, instead: str
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Warn whenever the decorated function is called.

    Args:
        since: The first version that warns.
        removed_in: The version that removes the function.
        instead: What to use in its place, as a public name.

    Returns:
        A decorator. The function behaves as before. Its attribute `__deprecated__` holds the
        message, which is where type checkers and editors look for it.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        module = function.__module__.partition(".")[0]
        message = _message(f"{module}.{function.__qualname__}", since, removed_in, instead)

        @functools.wraps(function)
        def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            warnings.warn(message, DeprecationWarning, stacklevel=_CALLER)
            return function(*args, **kwargs)

        wrapper.__deprecated__ = message  # type: ignore[attr-defined]
        return wrapper

    return decorate


def warn_deprecated(
    name: str, *, since: str, removed_in: str, instead: str, stack_level: int = _CALLER
) -> None:
    """Warn about something that is not a function: a parameter, an option or a value.

    Args:
        name: What is deprecated, such as `"parameter 'rows' of icestream.scan"`.
        since: The first version that warns.
        removed_in: The version that removes it.
        instead: What to use in its place.
        stack_level: Which caller the warning points to. 2 is the code that called the function
            which calls this one.
    """
    message = _message(name, since, removed_in, instead)
    warnings.warn(message, DeprecationWarning, stacklevel=stack_level + 1)


def _message(name: str, since: str, removed_in: str, instead: str) -> str:
    return (
        f"{name} is deprecated since icestream {since} and will be removed in {removed_in}: "
        f"use {instead} instead"
    )
