"""The output of a scan: a file that appears when it is complete, or stdout."""

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
    """A file that can be stopped. It then drops what writers still write, such as a footer."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stopped = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._stopped:
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        if not self._stopped and not self._file.closed:
            self._file.flush()

    def stop(self) -> None:
        """Drop all further writes."""
        self._stopped = True


@contextmanager
def open_output(name: str) -> Iterator[Output]:
    """Open a file for writing, or stdout for `-`.

    The file has a temporary name in the same folder until the block ends. If the block raises, the
    file is deleted. An existing device or pipe, such as `/dev/null`, is written to directly.

    Raises:
        WriteError: If the file can't be created.
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
        raise WriteError(f"{name!r} is a folder: pass the name of a file", path=name)
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.unfinished")
    try:
        file = unfinished.open("xb")
    except OSError as error:
        raise WriteError(
            f"can't write {name!r}: {error.strerror}: check its folder", path=name
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
    """Send stdout to the null device after its reader has stopped, so that nothing fails."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
