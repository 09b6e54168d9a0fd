"""Forked children: cheap processes to be killed.

The process that forks imports everything and reads no table itself, so that it has no threads.
"""

from __future__ import annotations

import json
import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAILED = 70


def start(work: Callable[[], None]) -> int:
    """Run `work` in a child; it must not return anything.

    Returns:
        Its process id.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(FAILED)


def answer(work: Callable[[], Any], *, timeout_seconds: float = 300) -> Any:
    """Run `work` in a child and return what it returns, which must be JSON.

    Raises:
        ChildDiedError: If it raised, was killed by a signal, or did not end in time.
    """
    reading, writing = os.pipe()

    def told() -> None:
        os.close(reading)
        try:
            text = json.dumps({"answer": work()})
        except Exception:
            text = json.dumps({"error": traceback.format_exc()})
        with open(writing, "w") as pipe:
            pipe.write(text)

    pid = start(told)
    os.close(writing)
    deadline = time.monotonic() + timeout_seconds
    text = _read_until(reading, pid, deadline)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if not text:
        raise ChildDiedError(f"a process of the attack ended with {code}")
    found = json.loads(text)
    if "error" in found:
        raise ChildDiedError(found["error"])
    return found["answer"]


class ChildDiedError(Exception):
    """A child that was not to die did."""


def _read_until(reading: int, pid: int, deadline: float) -> str:
    os.set_blocking(reading, False)
    parts: list[bytes] = []
    with open(reading, "rb", buffering=0) as pipe:
        while True:
            part = pipe.read(1 << 16)
            if part:
                parts.append(part)
            elif part == b"":
                return b"".join(parts).decode()
            elif time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
                raise ChildDiedError("a process of the attack did not end in time: it hangs")
            else:
                time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Whether a child runs; it is reaped if it does not."""
    done, _ = os.waitpid(pid, os.WNOHANG)
    return done == 0


class Journal:
    """A file to which a process that may die at any moment adds lines of JSON."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, **facts: Any) -> None:
        """Add a line, in one call to the system."""
        os.write(self._file, (json.dumps(facts) + "\n").encode())


def read_journals(folder: Path) -> list[dict[str, Any]]:
    """The lines of all journals in a folder."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.journal"))
        for line in path.read_text().splitlines()
    ]
