"""Our errors, found again in those that Spark makes of them."""

from __future__ import annotations

import re
from collections.abc import Callable

from icestream import errors
from icestream.errors import IcestreamError
from icestream.spark.task_failure import driver_error

# The last line of a Python traceback, which Spark's messages hold.
_LINE = re.compile(r"^\s*(?:icestream\.errors\.)(\w+): (.*)$", re.MULTILINE)
_PATH = re.compile(r"\S+://\S+|/\S+")
_SPLIT = re.compile(r"\(split (\w+)\)")


def typed(error: BaseException) -> BaseException:
    """The error of ours that a Spark error was made of, or the error itself.

    Errors of tasks carry themselves along (`task_failure.py`). Those of the processes in which
    Spark plans are text: what the text does not hold is not in the result, and the bytes of a
    `MemoryBudgetError`, for one, are 0.

    Args:
        error: Raised by Spark, on the driver.
    """
    if isinstance(error, IcestreamError):
        return error
    noted = driver_error(error, what="the job")
    if isinstance(noted, IcestreamError) and not isinstance(noted, errors.TaskFailedError):
        return noted
    found = _LINE.findall(str(error))
    if not found:
        return error
    name, message = found[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, IcestreamError)):
        return error
    made = _make(kind, message.strip())
    made.__cause__ = error
    return made


def _make(kind: type[IcestreamError], message: str) -> IcestreamError:
    build: Callable[..., IcestreamError] = kind
    for base, arguments in _ARGUMENTS.items():
        if issubclass(kind, base):
            return build(message, **arguments(message))
    return build(message)


def _of_read(message: str) -> dict[str, object]:
    split = _SPLIT.search(message)
    return {"path": _path(message), "split": split.group(1) if split else None}


def _path(message: str) -> str:
    found = _PATH.search(message)
    return found.group(0).rstrip(":,.") if found else ""


# The most special first.
_ARGUMENTS: dict[type[IcestreamError], Callable[[str], dict[str, object]]] = {
    errors.DuplicateKeysError: lambda message: {"column": "", "examples": ()},
    errors.InvalidDataError: lambda message: {"column": ""},
    errors.MemoryBudgetError: lambda message: {"needed_bytes": 0, "limit_bytes": 0},
    errors.SchemaMismatchError: lambda message: {"differences": ()},
    errors.ReadError: _of_read,
    errors.WriteError: lambda message: {"path": _path(message)},
    errors.CredentialsExpiredError: lambda message: {"path": _path(message)},
    errors.CommitUnknownError: lambda message: {"snapshot_id": 0},
}
