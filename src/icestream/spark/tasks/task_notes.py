"""What a task notes for the driver: its error, and the memory of its Python worker.

Spark passes only the text of a worker's traceback to the driver. So icestream adds a note with the
error as data, which becomes part of that text. The text may also contain values of rows, so a note
is parsed and never executed: a forged note can at most produce a wrong error.

The base of a worker is the interpreter, PyArrow, PySpark and icestream, measured before the first
task does any work. Tasks add the memory that they hold, up to their limit.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from icestream import errors as kinds
from icestream.errors import IcestreamError, TaskFailedError
from icestream.memory.machine import resident_bytes
from icestream.spark.setup.installed import pyspark_module

_NOTE = "icestream-error: "
_NOTES = re.compile(rf"{_NOTE}([A-Za-z0-9+/=]+)")
_SHOWN_CHARACTERS = 500
_NO_CODE = "No module named 'icestream'"

Measured = tuple[int, int]
"""The peak and the base of a worker in bytes, or zeros where the system does not report them."""

_base_bytes: int | None = None


@contextmanager
def note_error() -> Iterator[None]:
    """In a task: add the note to errors of icestream."""
    try:
        yield
    except IcestreamError as error:
        error.add_note(error_note(error))
        raise


def error_note(error: IcestreamError) -> str:
    """The note of an error: text from which `driver_error` builds the error again."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == kinds.__name__)
    parts = [kind.__name__, str(error), _arguments(error)]
    return _NOTE + base64.b64encode(json.dumps(parts).encode()).decode("ascii")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise errors of icestream without their causes, whose data Spark would show."""
    try:
        yield
    except IcestreamError as error:
        error.__cause__ = None
        error.__suppress_context__ = True
        raise


@contextmanager
def planning_errors() -> Iterator[None]:
    """In a process in which Spark plans: raise errors of icestream without causes and traceback.

    Spark passes on the text of the error, with the traceback first unless this variable is set. The
    process ends after an error, so that nothing else loses its traceback.
    """
    try:
        with plain_errors():
            yield
    except IcestreamError:
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if main is not None and main.name.startswith("pyspark."):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def driver_error(error: BaseException, *, what: str) -> BaseException:
    """The error to raise to the caller when a Spark job fails.

    Args:
        error: The error that PySpark raised.
        what: What the job was doing, for the message.

    Returns:
        The error of the task if it is one of icestream's, otherwise a `TaskFailedError`. `error`
        itself is returned if the query is wrong or if the error does not come from Spark.
    """
    if (inner := _noted(str(error))) is not None:
        return inner
    if not _is_failed_job(error):
        return error
    if _NO_CODE in str(error):
        return TaskFailedError(
            f"{what} failed in Spark, because the executors lack icestream ({_NO_CODE}): send it "
            "with icestream.spark.ship(spark), or install it there. The table was not changed"
        )
    return TaskFailedError(
        f"{what} failed in Spark. The table was not changed and the new files were deleted: "
        f"{_short(error)}"
    )


def _arguments(error: IcestreamError) -> dict[str, object]:
    """The arguments of an error except its message."""
    plain = (str, int, tuple, type(None))
    return {
        name: value
        for name, value in vars(error).items()
        if isinstance(value, plain) and not name.startswith("_")
    }


def _noted(text: str) -> IcestreamError | None:
    """The error in the last note of a text. Earlier notes may come from values of rows."""
    notes = _NOTES.findall(text)
    if not notes:
        return None
    try:
        name, message, arguments = json.loads(base64.b64decode(notes[-1]))
        kind = getattr(kinds, name)
        if not issubclass(kind, IcestreamError):
            return None
        error: IcestreamError = kind(
            message, **{n: tuple(v) if isinstance(v, list) else v for n, v in arguments.items()}
        )
    except (ValueError, TypeError, AttributeError):  # from another version, or not a note
        return None
    return error


def _is_failed_job(error: BaseException) -> bool:
    """Whether tasks failed, as opposed to a query that can't be analysed or an interrupt."""
    errors = pyspark_module("pyspark.errors")
    if isinstance(error, (errors.AnalysisException, errors.ParseException)):
        return False
    from_py4j = type(error).__module__.partition(".")[0] == "py4j"
    return from_py4j or isinstance(error, errors.PySparkException)


def _short(error: BaseException) -> str:
    """The first and last lines of an error, without the stack traces."""
    text = str(error).partition("\nDriver stacktrace:")[0].partition("\nJVM stacktrace:")[0]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    summary = lines[-1].strip() if lines else type(error).__name__
    if len(lines) > 1:
        summary = f"{lines[0].strip()} ... {summary}"
    return summary if len(summary) <= _SHOWN_CHARACTERS else f"{summary[:_SHOWN_CHARACTERS]}..."


def note_base() -> None:
    """In a task, before its work: remember how much memory the worker uses by itself."""
    global _base_bytes
    if _base_bytes is None:
        _base_bytes = resident_bytes("self", "VmRSS") or 0


def measured_worker() -> Measured:
    """In a task, after its work: the peak of the worker so far, and its base."""
    note_base()
    assert _base_bytes is not None
    return resident_bytes("self", "VmHWM") or 0, _base_bytes
