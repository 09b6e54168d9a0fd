"""A real FileIO that remembers what was opened, and fails or waits where a test asks it to.

`watch(table)` puts one in the place of the table's own. Hooks run in the thread that opens or
reads; what they raise comes out of the open or read. A pickled one has neither hooks nor memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import IO, Any

from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties

_DATA_DIRECTORY = "/data/"
# Python's names for threads of Arrow's own pools that have called a hook: they live on.
ARROW_THREADS = ("Dummy-",)


class WatchedFileIO(PyArrowFileIO):
    """PyIceberg's own FileIO for Arrow, watched.

    Attributes:
        opened: The paths of data and delete files, in the order in which they were opened.
        on_open: Called with the path before a data or delete file is opened.
        on_read: Called with path, offset and length before each read of such a file. Without it,
            reads go to Arrow's own file.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._reset()

    def _reset(self) -> None:
        self.opened: list[str] = []
        self.on_open: Callable[[str], None] | None = None
        self.on_read: Callable[[str, int, int], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("opened", "on_open", "on_read")
        return {key: value for key, value in super().__getstate__().items() if key not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reset()

    def new_input(self, location: str) -> Any:
        """Return the file; watched, if it is one of data or deletes."""
        file = super().new_input(location)
        return _WatchedFile(file, self) if _DATA_DIRECTORY in location else file


class _WatchedFile(InputFile):
    def __init__(self, file: PyArrowFile, io: WatchedFileIO) -> None:
        super().__init__(file.location)
        self._file = file
        self._io = io

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return self._file.exists()

    def open(self, seekable: bool = True) -> Any:
        self._io.opened.append(self.location)
        if self._io.on_open is not None:
            self._io.on_open(self.location)
        stream = self._file.open(seekable)
        if self._io.on_read is None:
            return stream
        return _WatchedStream(stream, self.location, self._io)


class _WatchedStream:
    """The file-like object that `pa.PythonFile` takes."""

    def __init__(self, stream: IO[bytes], path: str, io: WatchedFileIO) -> None:
        self._stream = stream
        self._path = path
        self._io = io

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, length: int = -1) -> bytes:
        if self._io.on_read is not None:
            self._io.on_read(self._path, self._stream.tell(), length)
        return self._stream.read(length)

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _WatchedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FailTimes:
    """A hook that raises `make()` the first `times` times it is called for a path of `paths`.

    Args:
        make: Makes the exception.
        times: How often; -1 for always.
        paths: Which files; None for all.
        after: Let so many calls pass first.
    """

    def __init__(
        self,
        make: Callable[[], BaseException],
        times: int = -1,
        *,
        paths: set[str] | None = None,
        after: int = 0,
    ) -> None:
        self._make = make
        self._left = times
        self._paths = paths
        self._pass = after
        self._lock = threading.Lock()
        self.raised = 0

    def __call__(self, path: str, *_: int) -> None:
        with self._lock:
            if self._left == 0 or (self._paths is not None and path not in self._paths):
                return
            if self._pass:
                self._pass -= 1
                return
            self._left -= 1
            self.raised += 1
        raise self._make()


def watch(table: Table) -> WatchedFileIO:
    """Put a watched FileIO in the place of the table's own; until the table is refreshed."""
    table.io = WatchedFileIO(table.io.properties)
    return table.io


def wait_until(condition: Callable[[], bool], *, give_up_seconds: float = 60) -> None:
    """Wait for what must come to pass; fail if it does not."""
    give_up = time.monotonic() + give_up_seconds
    while not condition():
        if time.monotonic() > give_up:
            raise AssertionError("what was waited for did not happen")
        time.sleep(0.005)


def settled(value: Callable[[], Any], *, quiet_seconds: float = 0.3) -> Any:
    """Return a value once it has not changed for a while: nothing is going on any more."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < quiet_seconds:
        time.sleep(0.01)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last
