"""A real FileIO whose writes and deletes fail where a test asks them to.

A catalog with the property `py-io-impl` set to `PATH` makes them, also when a table is refreshed.
So what fails is set for the whole process: use `failing(...)`.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

PATH = "tests.fault.failing_io.FailingFileIO"

_lock = threading.Lock()
_faults: list[Fault] = []


class Fault:
    """Fails the writes of some files.

    Args:
        matches: Which files, by path.
        when: `"open"`, `"write"`, `"close"` or `"delete"`.
        after: How many such calls pass first.
        error: Makes the exception; a full disk by default.

    Attributes:
        raised: How often it has failed something.
    """

    def __init__(
        self,
        matches: Callable[[str], bool],
        when: str,
        *,
        after: int = 0,
        error: Callable[[], BaseException] = lambda: OSError(errno.ENOSPC, "No space left"),
    ) -> None:
        self.raised = 0
        self._matches = matches
        self._when = when
        self._left = after
        self._error = error

    def check(self, path: str, when: str) -> None:
        """Raise, if it is time to."""
        with _lock:
            if when != self._when or not self._matches(path):
                return
            if self._left:
                self._left -= 1
                return
            self.raised += 1
        raise self._error()


@contextmanager
def failing(fault: Fault) -> Iterator[Fault]:
    """Let a fault happen while the context is open."""
    _faults.append(fault)
    try:
        yield fault
    finally:
        _faults.remove(fault)


def _check(path: str, when: str) -> None:
    for fault in list(_faults):
        fault.check(path, when)


class FailingFileIO(PyArrowFileIO):
    """PyIceberg's own FileIO for Arrow, with faults."""

    def new_output(self, location: str) -> Any:
        return _FailingFile(super().new_output(location))

    def delete(self, location: Any) -> None:
        _check(str(getattr(location, "location", location)), "delete")
        super().delete(location)


class _FailingFile(OutputFile):
    def __init__(self, file: Any) -> None:
        super().__init__(file.location)
        self._file = file

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return bool(self._file.exists())

    def to_input_file(self) -> Any:
        return self._file.to_input_file()

    def create(self, overwrite: bool = False) -> Any:
        _check(self.location, "open")
        return _FailingStream(self._file.create(overwrite), self.location)


class _FailingStream:
    """What `pa.PythonFile` and PyIceberg's Avro writer take."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._stream.tell())

    def flush(self) -> None:
        self._stream.flush()

    def write(self, data: Any) -> int:
        _check(self._path, "write")
        return int(self._stream.write(data))

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            _check(self._path, "close")

    def __enter__(self) -> _FailingStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
