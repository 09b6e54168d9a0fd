"""A Spark session in a process of its own, which calls functions for the tests.

A process has one kind of session at a time: so tests of a cluster and of Spark Connect can run
beside those of a local session.
"""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

_WAIT_SECONDS = 350
_END_SECONDS = 60


class SparkProcessError(Exception):
    """The process died, or does not answer."""


class SparkProcess:
    """Use it as a context.

    Args:
        env: Variables for the process, and so for the JVM that it starts.
        **session: The arguments of `icestream.spark.session`.
    """

    def __init__(self, *, env: Mapping[str, str] | None = None, **session: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._answers, other = context.Pipe()
        arguments = (other, dict(env or {}), session)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        other.close()

    def __enter__(self) -> SparkProcess:
        self._answer("the start")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.is_alive():
            self._answers.send(None)
        self._process.join(_END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._answers.close()

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What `function(spark, *arguments, **options)` returns there; or raise what it raises."""
        self._answers.send((function, arguments, options))
        return self._answer(function.__qualname__)

    def _answer(self, to: str) -> Any:
        try:
            if not self._answers.poll(_WAIT_SECONDS):
                raise SparkProcessError(f"no answer to {to} after {_WAIT_SECONDS} seconds")
            result, error, told = self._answers.recv()
        except EOFError:
            self._process.join(_END_SECONDS)
            code = self._process.exitcode
            raise SparkProcessError(f"the process ended with {code} at {to}") from None
        if error is not None:
            error.add_note(told)
            raise error
        return result


def _serve(answers: Connection, env: dict[str, str], session: dict[str, Any]) -> None:
    """Runs in the process."""
    os.environ.update(env)
    import icestream.spark as ice_spark

    spark = None

    def start() -> None:
        nonlocal spark
        spark = ice_spark.session(**session)

    _reply(answers, start)
    while spark is not None and (request := answers.recv()) is not None:
        function, arguments, options = request
        _reply(answers, function, spark, *arguments, **options)
    if spark is not None:
        spark.stop()


def _reply(answers: Connection, function: Any, *arguments: Any, **options: Any) -> None:
    try:
        answer = (function(*arguments, **options), None, "")
    except Exception as error:
        answer = (None, error, traceback.format_exc())
    try:
        answers.send(answer)
    except Exception as error:  # It can't be pickled: its text will do.
        answers.send((None, SparkProcessError(f"{error}: {answer[1]}"), answer[2]))
