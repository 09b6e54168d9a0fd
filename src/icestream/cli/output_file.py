"""Where rows go: a file that appears when it is complete, or stdout."""

from __future__ import annotations

import io
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from icestream.errors import WriteError


class Output(io.RawIOBase):
    """A file that can be stopped: what writers still write then, such as a footer, is dropped."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stopped = False

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Write all of it."""
        if not self._stopped:
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Hand on what is buffered."""
        if not self._stopped and not self._file.closed:
            self._file.flush()

    def stop(self) -> None:
        """Write nothing any more."""
        self._stopped = True


@contextmanager
def open_output(name: str) -> Iterator[Output]:
    """Open a file for writing, or stdout for `-`.

    A file is written under another name beside it, and takes its own at the end; if the block
    raises, it is deleted. What is there and is no plain file (`/dev/null`, a pipe) is written to.

    Raises:
        WriteError: If the file can't be made.
    """
    if name == "-":
        yield Output(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as device:
            yield Output(device)
        return
    if path.is_dir():
        raise WriteError(f"{name!r} is a folder: give the name of a file", path=name)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        file = unfinished.open("xb")
    except OSError as error:
        raise WriteError(
            f"{name!r} can't be written: {error.strerror}: check its folder", path=name
        ) from error
    try:
        with file:
            yield Output(file)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def leave_stdout() -> None:
    """After the reader of stdout has gone: nothing more is written, nor complained about."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
