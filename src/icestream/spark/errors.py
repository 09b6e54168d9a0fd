"""`typed`: converts an error of Spark back to the error of icestream that caused it."""

from __future__ import annotations

import re
from collections.abc import Callable

from icestream import errors
from icestream.errors import IcestreamError
from icestream.spark.tasks.task_notes import driver_error

# In Spark's message: the last line of a Python traceback, or the end of its first line.
_LINE = re.compile(r"(?:^\s*|^\[PYTHON_.*?: )icestream\.errors\.(\w+): (.*)$", re.MULTILINE)
_PATH = re.compile(r"\S+://\S+|/\S+")
_SPLIT = re.compile(r"\(split (\w+)\)")


def typed(error: BaseException) -> BaseException:
    """The error of icestream that caused a Spark error, or the error itself.

    An error of a task is complete, because Spark's message contains all its attributes
    (`task_notes.py`). From a process in which Spark plans, only the message arrives: other
    attributes are empty, for example the bytes of a `MemoryBudgetError` are 0.

    Args:
        error: An error that Spark raised on the driver.
    """
    if isinstance(error, IcestreamError):
        return error
    noted = driver_error(error, what="the job")
    if isinstance(noted, IcestreamError) and not isinstance(noted, errors.TaskFailedError):
        return noted
    lines = _LINE.findall(str(error))
    if not lines:
        return error
    name, message = lines[-1]
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, IcestreamError)):
        return error
    original = _build(kind, message.strip())
    original.__cause__ = error
    return original


def _build(kind: type[IcestreamError], message: str) -> IcestreamError:
    build: Callable[..., IcestreamError] = kind
    for base, arguments in _ARGUMENTS.items():
        if issubclass(kind, base):
            return build(message, **arguments(message))
    return build(message)


def _read_arguments(message: str) -> dict[str, object]:
    split = _SPLIT.search(message)
    return {"path": _path(message), "split": split.group(1) if split else None}


def _path(message: str) -> str:
    path = _PATH.search(message)
    return path.group(0).rstrip(":,.") if path else ""


# Subclasses come before their base classes.
_ARGUMENTS: dict[type[IcestreamError], Callable[[str], dict[str, object]]] = {
    errors.DuplicateKeysError: lambda message: {"column": "", "examples": ()},
    errors.InvalidDataError: lambda message: {"column": ""},
    errors.MemoryBudgetError: lambda message: {"needed_bytes": 0, "limit_bytes": 0},
    errors.SchemaMismatchError: lambda message: {"differences": ()},
    errors.ReadError: _read_arguments,
    errors.WriteError: lambda message: {"path": _path(message)},
    errors.CredentialsExpiredError: lambda message: {"path": _path(message)},
    errors.CommitUnknownError: lambda message: {"snapshot_id": 0},
}
