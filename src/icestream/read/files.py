"""Opening data files, telling transient failures from lasting ones, and naming both."""

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
from pyiceberg.io import FileIO

from icestream.credentials import (
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

_MOST_RENEWALS = 3  # for one action: new credentials that are refused as well are not the cure

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
    """How often and how patiently a transient read error is tried again.

    Attributes:
        retries: Further attempts after the first.
        wait_seconds: The wait before the first retry; it doubles each time, up to 10 seconds.
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
    """Whether trying again may help.

    On a network file system every I/O error may pass, a short read among them, except those that
    say that the file is not there or not ours. On a local disk only a few error numbers do.
    """
    if not isinstance(error, OSError) or isinstance(error, _LASTING):
        return False
    if error.errno in _TRANSIENT_ERRNOS or isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if error.errno is None and _TRANSIENT_TEXT.search(str(error)):  # the ORC reader keeps the text
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
    """Run an action on a file; retry what is transient; raise a typed error for the rest.

    With `io`, credentials that have expired are renewed, and the action is run again.
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
                    raise expired_error(path, "new ones were refused as well") from error
                if renewals <= _MOST_RENEWALS and renewed_after(error, io, used, path=path):
                    on_retry()
                    continue
            attempt += 1
            gone = stopped is not None and stopped.is_set()
            if gone or attempt > policy.retries or not is_transient(error, path):
                raise typed_error(error, path=path, split=split, attempts=attempt) from error
            on_retry()
            _log.warning("read of %s, try %s: %s", path, attempt, type(error).__name__)
            pause = policy.pause_seconds(attempt)
            if stopped is None:
                time.sleep(pause)
            elif stopped.wait(pause):
                raise typed_error(error, path=path, split=split, attempts=attempt) from error


def typed_error(error: Exception, *, path: str, split: str | None, attempts: int = 1) -> ReadError:
    """The error of ours that says what happened to which file, and what to do."""
    where = f"{path} (split {split})" if split else path
    missing = isinstance(error, OSError) and any(word in str(error) for word in _MISSING_WORDS)
    if missing or isinstance(error, FileNotFoundError):
        return FileMissingError(
            f"{where} is gone, but the table refers to it: restore it, or roll the table back to a "
            "snapshot that does not need it",
            path=path,
            split=split,
        )
    if isinstance(error, PermissionError):
        return ReadError(f"{where} may not be read: {error}", path=path, split=split)
    if is_transient(error, path) and not _shows_damage(error):
        return TransientReadError(
            f"{where} could not be read in {attempts} attempts: {error}. Try again later, or raise "
            "retries",
            path=path,
            split=split,
        )
    if isinstance(error, (OSError, pa.ArrowException, ValueError, EOFError)):
        return CorruptFileError(
            f"{where} can't be decoded, it is damaged, truncated or not of its format: {error}",
            path=path,
            split=split,
        )
    return ReadError(f"{where}: {type(error).__name__}: {error}", path=path, split=split)


def _shows_damage(error: Exception) -> bool:
    """Whether a checksum failed. On a network it may have been the transfer: it is read again."""
    return "checksum verification failed" in str(error)


def open_file(io: FileIO, path: str) -> pa.NativeFile:
    """Open a file for random access."""
    stream = io.new_input(path).open()
    if isinstance(stream, pa.NativeFile):
        return stream
    return pa.PythonFile(stream, mode="r")


class SharedFile:
    """One open file for all the row groups that are decoded from it at once.

    `ReadAt` is thread-safe in Arrow, so streams can share a handle; on an object store that saves a
    request for each of them. The last `release` closes it. A handle keeps the credentials that it
    was opened with: once there are others, the file is opened again. It is also opened again if the
    handle was closed. Only the reader of an ORC file may close it, because it has no other users.

    Args:
        io: How it is opened, for the first `acquire` and again after the last `release`.
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
        """The open file; every call needs its `release`."""
        with self._lock:
            handle = self._current()
            self._users += 1
            return handle

    def current(self) -> pa.NativeFile:
        """The open file, for a caller that has acquired it."""
        with self._lock:
            return self._current()

    def release(self) -> None:
        """Done with it, once per `acquire`."""
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
                self._old.append(self._handle)  # others may still read from it
            self._handle, self._credentials = handle, credentials
        return handle
