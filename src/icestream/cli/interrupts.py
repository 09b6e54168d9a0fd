"""Ctrl-C and warnings: the first Ctrl-C ends a command cleanly, the second one at once."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

import click

from icestream.cli.exit_codes import ExitCode
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import in_options

# Arrow may deliver one Ctrl-C twice.
_SAME_SECONDS = 0.5
_SHOW_CURSOR = "\x1b[?25h"


class Terminated(SystemExit):
    """SIGTERM arrived: the command ends as cleanly as after Ctrl-C."""


class Interrupts:
    """Handles Ctrl-C and SIGTERM, and prints warnings, until the process ends.

    The first Ctrl-C raises `KeyboardInterrupt`. While the command then cleans up, another one ends
    the process at once.
    """

    def __init__(self) -> None:
        self._first: float | None = None

    def install(self) -> None:
        """Handle signals, if this is the main thread, and warnings of all loggers."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminate)
            signal.signal(signal.SIGINT, self._interrupt)
        logging.getLogger().addHandler(_Warnings(self))

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self._first is not None

    def ended(self) -> None:
        """Let another Ctrl-C end the process without a word: the command has ended."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda *_: os._exit(ExitCode.INTERRUPTED))

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
            raise KeyboardInterrupt
        if now - self._first >= _SAME_SECONDS:
            _end_at_once()


class _Warnings(logging.Handler):
    """Prints warnings of libraries as one line each, unless `--quiet` is set or after Ctrl-C.

    Py4J logs a traceback when Ctrl-C interrupts a call of Spark, and others when Spark then ends.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        super().__init__(logging.WARNING)
        self._interrupts = interrupts

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        kind = record.exc_info[0] if record.exc_info else None
        is_stop = kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit)
        context = click.get_current_context(silent=True)
        settings = None if context is None else context.find_object(Settings)
        is_quiet = settings is not None and settings.quiet
        if not (is_stop or is_quiet or self._interrupts.is_interrupted):
            click.echo(f"icestream: {in_options(record.getMessage())}", err=True)


def _end_at_once() -> NoReturn:
    # click and sys.stderr have locks that the interrupted code may hold.
    text = "icestream: interrupted again: ended at once, without cleaning up\n"
    if sys.stderr.isatty():
        text = f"\r{_SHOW_CURSOR}{text}"
    os.write(2, text.encode())
    os._exit(ExitCode.INTERRUPTED)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(ExitCode.TERMINATED)
