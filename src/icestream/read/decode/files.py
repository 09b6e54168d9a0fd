"""Open data files, retry transient errors, and raise typed errors for the others."""

from __future__ import annotations

import errno
import logging
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO, InputStream

from icestream.catalogs.credentials import (
    credentials_of,
    expired_error,
    is_expired,
    is_refused,
    renewed_after,
)
from icestream.errors import (
    CorruptFileError,
    FileMissingError,
    IcestreamError,
    InvalidArgumentError,
    ReadError,
    TransientReadError,
)

T = TypeVar("T")

_MOST_RENEWALS = 3  # For one action. More do not help if new credentials are refused, too.

_log = logging.getLogger(__name__)

_TRANSIENT_ERRNOS = {
    errno.EIO,
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EPIPE,
    errno.ESTALE,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
}
_TRANSIENT_TEXT = re.compile(
    "|".join(rf"\[Errno {number}\]" for number in sorted(_TRANSIENT_ERRNOS))
    + r"|timed out|[Cc]onnection (reset|aborted|refused)|[Bb]roken pipe"
)
_LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_MISSING_WORDS = ("NO_SUCH_KEY", "RESOURCE_NOT_FOUND", "NO_SUCH_BUCKET")
_LASTING_WORDS = (
    "ACCESS_DENIED",
    "NO_SUCH_KEY",
    "NO_SUCH_BUCKET",
    "RESOURCE_NOT_FOUND",
    "HTTP code 403",
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a read is retried after a transient error, and how long to wait.

    Attributes:
        retries: Number of attempts after the first.
        wait_seconds: Wait before the first retry. It doubles each time, up to 10 seconds.
    """

    retries: int = 3
    wait_seconds: float = 0.1

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise InvalidArgumentError(
                f"retries is {self.retries!r}: give a whole number, 0 or more"
            )
        number = (
            isinstance(self.wait_seconds, (int, float)) and self.wait_seconds == self.wait_seconds
        )
        if not number or self.wait_seconds < 0:
            raise InvalidArgumentError(
                f"retry_wait_seconds is {self.wait_seconds!r}: give seconds, 0 or more"
            )

    def pause_seconds(self, attempt: int) -> float:
        """How long to wait after failed attempt number `attempt` (1, 2, ...)."""
        return float(min(self.wait_seconds * 2 ** (attempt - 1), 10.0))


def is_remote(path: str) -> bool:
    """Whether a location is on an object store or another network file system."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme not in ("file", "")


def is_transient(error: BaseException, path: str) -> bool:
    """Whether a retry may succeed.

    On a network file system every I/O error may be transient, including a short read. The
    exceptions are a missing file and a lack of permission. On a local disk only a few errors are
    transient.
    """
    if not isinstance(error, OSError) or isinstance(error, _LASTING):
        return False
    if error.errno in _TRANSIENT_ERRNOS or isinstance(error, (TimeoutError, ConnectionError)):
        return True
    # The ORC reader keeps only the text.
    if error.errno is None and _TRANSIENT_TEXT.search(str(error)):
        return True
    return is_remote(path) and not any(word in str(error) for word in _LASTING_WORDS)


def retrying(
    action: Callable[[], T],
    *,
    path: str,
    policy: RetryPolicy,
    split: str | None = None,
    stopped: threading.Event | None = None,
    on_retry: Callable[[], None] = lambda: None,
    io: FileIO | None = None,
) -> T:
    """Run an action on a file. Retry transient errors, and raise typed errors for others.

    With `io`, expired credentials are renewed, and the action is run again.
    """
    attempt = renewals = 0
    while True:
        used = credentials_of(io) if io is not None else {}
        try:
            return action()
        except IcestreamError:
            raise
        except Exception as error:
            if io is not None and is_remote(path) and is_refused(error):
                renewals += 1
                if renewals > _MOST_RENEWALS and is_expired(error, io):
                    raise expired_error(path, "the store also refused new ones") from error
                if renewals <= _MOST_RENEWALS and renewed_after(error, io, used, path=path):
                    on_retry()
                    continue
            attempt += 1
            gone = stopped is not None and stopped.is_set()
            if gone or attempt > policy.retries or not is_transient(error, path):
                raise typed_error(error, path=path, split=split, attempts=attempt) from error
            on_retry()
            _log.warning("reading %s failed in attempt %s: %s", path, attempt, type(error).__name__)
            pause = policy.pause_seconds(attempt)
            if stopped is None:
                time.sleep(pause)
            elif stopped.wait(pause):
                raise typed_error(error, path=path, split=split, attempts=attempt) from error


def typed_error(error: Exception, *, path: str, split: str | None, attempts: int = 1) -> ReadError:
    """The error of icestream that names the file, the problem and a remedy."""
    where = f"{path} (split {split})" if split else path
    missing = isinstance(error, OSError) and any(word in str(error) for word in _MISSING_WORDS)
    kind: type[ReadError] = ReadError
    if missing or isinstance(error, FileNotFoundError):
        kind = FileMissingError
        message = (
            f"{where} does not exist, but the table refers to it: restore it, or roll the table "
            "back to a snapshot that does not need it"
        )
    elif isinstance(error, PermissionError):
        message = f"permission to read {where} is denied: {error}"
    # A failed checksum shows damage, though on a network it may be worth a retry.
    elif is_transient(error, path) and "checksum verification failed" not in str(error):
        kind = TransientReadError
        message = (
            f"{where} could not be read in {attempts} attempts: {error}. Try again later, or raise "
            "retries"
        )
    elif isinstance(error, (OSError, pa.ArrowException, ValueError, EOFError)):
        kind = CorruptFileError
        message = (
            f"{where} can't be decoded: it is damaged, truncated or not in its format: {error}"
        )
    else:
        message = f"{where}: {type(error).__name__}: {error}"
    return kind(message, path=path, split=split)


def open_file(io: FileIO, path: str) -> pa.NativeFile:
    """Open a file for random access."""
    stream = io.new_input(path).open()
    if isinstance(stream, pa.NativeFile):
        return stream
    return pa.PythonFile(stream, mode="r")


class FileStream:
    """Reads a file from start to end, and opens it again after a transient error.

    Args:
        io: File access.
        path: The file.
        policy: The policy for retries.
        stopped: Ends retries when it is set.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        policy: RetryPolicy,
        stopped: threading.Event | None = None,
    ) -> None:
        self._io = io
        self._path = path
        self._policy = policy
        self._stopped = stopped
        self._position = 0
        self._handle: InputStream | None = None

    def read(self, count: int) -> bytes:
        """The next bytes, at most `count`; none at the end.

        Raises:
            ReadError: If the file can't be read.
        """
        content = retrying(
            lambda: self._read(count),
            path=self._path,
            policy=self._policy,
            stopped=self._stopped,
            io=self._io,
        )
        self._position += len(content)
        return content

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            handle.close()

    def _read(self, count: int) -> bytes:
        if self._handle is None:
            self._handle = self._io.new_input(self._path).open()
            if self._position:
                self._handle.seek(self._position)
        try:
            return bytes(self._handle.read(count))
        except BaseException:
            self.close()
            raise


class SharedFile:
    """An open file that several streams share.

    `ReadAt` is thread-safe in Arrow, so streams can share a handle. On an object store this saves a
    request for each of them. The last `release` closes the handle. A handle keeps its first
    credentials, so the file is opened again after they were renewed. It is also opened again if the
    handle was closed. Only the reader of an ORC file may close it, because it has no other users.

    Args:
        io: File access, for the first `acquire` and for the next one after the last `release`.
        path: The file.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._users = 0
        self._lock = threading.Lock()
        self._handle: pa.NativeFile | None = None
        self._old: list[pa.NativeFile] = []
        self._credentials: object = None

    def acquire(self) -> pa.NativeFile:
        """The open file. Call `release` once for each call."""
        with self._lock:
            handle = self._current()
            self._users += 1
            return handle

    def current(self) -> pa.NativeFile:
        """The open file, for a caller that has acquired it."""
        with self._lock:
            return self._current()

    def release(self) -> None:
        """End the use of the file, once for each `acquire`."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                handles = [*self._old, self._handle]
                self._handle, self._old = None, []
                for handle in handles:
                    if handle is not None:
                        with suppress(Exception):
                            handle.close()

    def _current(self) -> pa.NativeFile:
        credentials = credentials_of(self._io)
        handle = self._handle
        if handle is None or handle.closed or self._credentials is not credentials:
            handle = open_file(self._io, self._path)
            if self._handle is not None:
                self._old.append(self._handle)  # Others may still read from it.
            self._handle, self._credentials = handle, credentials
        return handle
