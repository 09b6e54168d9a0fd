"""Ctrl-C: once for a clean end, twice for an end at once. And warnings of libraries."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time

import click
import pytest

from icestream.cli.interrupts import Interrupts, _Warnings
from icestream.cli.options.settings import Settings

_PROGRAM = """
import logging, sys, time
from icestream.cli.interrupts import Interrupts
interrupts = Interrupts()
interrupts.install()
logging.getLogger("x").warning("a warning:\\nuse keys=")
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    logging.exception("KeyboardInterrupt while sending command.")  # as Py4J does
    logging.getLogger("py4j").error("the connection is gone")
    print("cleaning", flush=True)
    time.sleep({cleaning})
    sys.exit(130)
"""


def _interrupted(cleaning: float, pauses: list[float]) -> tuple[int, str, str]:
    line = [sys.executable, "-c", _PROGRAM.format(cleaning=cleaning)]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for pause in pauses:
            time.sleep(pause)
            process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
    return process.returncode, out, errors


def test_the_first_one_lets_the_command_clean_up_and_log_nothing() -> None:
    code, out, errors = _interrupted(0, [0])
    assert (code, out) == (130, "cleaning\n")
    assert errors == "icestream: a warning: use --keys\n"


def test_the_second_one_ends_the_process_at_once() -> None:
    code, out, errors = _interrupted(60, [0, 0.7])
    assert (code, out) == (130, "cleaning\n")
    assert errors.splitlines()[1:] == [
        "icestream: interrupted again: ended at once, without cleaning up"
    ]


def test_one_that_arrives_twice_counts_once() -> None:
    assert _interrupted(1, [0, 0.05])[:2] == (130, "cleaning\n")


def test_one_while_modules_are_imported_gives_one_line() -> None:
    source = (
        "import sys, icestream.__main__\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'icestream.cli.commands.scan': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "icestream.__main__.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "icestream: interrupted\n")


def test_quiet_commands_print_no_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    warnings = _Warnings(Interrupts())
    record = logging.LogRecord("x", logging.WARNING, "", 0, "slow: %s", ("disk",), None)
    for quiet in (False, True):
        with click.Context(click.Command("scan"), obj=Settings(quiet=quiet)):
            warnings.emit(record)
    assert capsys.readouterr().err == "icestream: slow: disk\n"
