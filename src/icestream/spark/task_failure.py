"""Errors of tasks, on the driver: the same types as in one process.

Spark hands the text of a worker's traceback to the driver, and no more. Our errors carry themselves
in a note of theirs, which is a part of that text. Values of rows may be a part of it as well, so a
note is data that is looked at, never code: one that somebody forged is at most an odd error.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from icestream import errors as kinds
from icestream.errors import IcestreamError, TaskFailedError
from icestream.spark.installed import pyspark_module

_NOTE = "icestream-error: "
_FOUND = re.compile(rf"{_NOTE}([A-Za-z0-9+/=]+)")
_SHOWN_CHARACTERS = 500
_NO_CODE = "No module named 'icestream'"


@contextmanager
def note_error() -> Iterator[None]:
    """In a task: have our errors carry themselves."""
    try:
        yield
    except IcestreamError as error:
        kind = next(each for each in type(error).__mro__ if each.__module__ == kinds.__name__)
        told = [kind.__name__, str(error), _arguments(error)]
        error.add_note(_NOTE + base64.b64encode(json.dumps(told).encode()).decode("ascii"))
        raise


def driver_error(error: BaseException, *, what: str) -> BaseException:
    """The error that the caller is to see, for one that a Spark job ended with.

    Args:
        error: What PySpark raised.
        what: What the job was doing, for the message.

    Returns:
        The task's own error if it was one of ours; PySpark's if the query itself is wrong; the
        error as it is if it has nothing to do with Spark; else a `TaskFailedError`.
    """
    if (inner := _noted(str(error))) is not None:
        return inner
    if not _is_failed_job(error):
        return error
    if _NO_CODE in str(error):
        return TaskFailedError(
            f"{what} failed in Spark, because its executors lack icestream ({_NO_CODE}): send it "
            "with icestream.spark.ship(spark), or install it there. Nothing was changed"
        )
    return TaskFailedError(
        f"{what} failed in Spark; nothing was changed and the files are deleted: {_short(error)}"
    )


def _arguments(error: IcestreamError) -> dict[str, object]:
    """What it was made with, beside its text."""
    plain = (str, int, tuple, type(None))
    return {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, plain) and not name.startswith("_")
    }


def _noted(text: str) -> IcestreamError | None:
    """The error of the last note in a text: what comes before it may be values of rows."""
    found = _FOUND.findall(text)
    if not found:
        return None
    try:
        name, message, arguments = json.loads(base64.b64decode(found[-1]))
        kind = getattr(kinds, name)
        if not issubclass(kind, IcestreamError):
            return None
        made: IcestreamError = kind(
            message, **{n: tuple(v) if isinstance(v, list) else v for n, v in arguments.items()}
        )
    except (ValueError, TypeError, AttributeError):  # of another version, or nothing of ours
        return None
    return made


def _is_failed_job(error: BaseException) -> bool:
    """Whether tasks failed; not: a query that can't be analysed, or an interrupt."""
    errors = pyspark_module("pyspark.errors")
    if isinstance(error, (errors.AnalysisException, errors.ParseException)):
        return False
    from_py4j = type(error).__module__.partition(".")[0] == "py4j"
    return from_py4j or isinstance(error, errors.PySparkException)


def _short(error: BaseException) -> str:
    """The lines that say what happened: of a traceback the last."""
    text = str(error).partition("\nDriver stacktrace:")[0].partition("\nJVM stacktrace:")[0]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    told = lines[-1].strip() if lines else type(error).__name__
    if len(lines) > 1:
        told = f"{lines[0].strip()} ... {told}"
    return told if len(told) <= _SHOWN_CHARACTERS else f"{told[:_SHOWN_CHARACTERS]}..."
