"""Files are opened, shared and closed; failures are told apart and named."""

from __future__ import annotations

import errno
import pickle
import threading

import pyarrow as pa
import pytest

import icestream as ice
from icestream.read.decode.files import (
    RetryPolicy,
    SharedFile,
    is_remote,
    is_transient,
    open_file,
    retrying,
    typed_error,
)
from tests.fault.watched_io import watch
from tests.support.tables import add_parquet_file, data_file_paths

_LOCAL = "file:///tables/a.parquet"
_REMOTE = "s3://tables/a.parquet"


class _Pauses:
    """In the place of an Event: remembers how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("/tables/a", False),
        ("file:///tables/a", False),
        ("file:/tables/a", False),
        ("s3://tables/a", True),
        ("s3a://tables/a", True),
        ("gs://tables/a", True),
        ("abfss://tables@account/a", True),
        ("hdfs://host/a", True),
    ],
)
def test_a_location_is_remote_by_its_scheme(path, remote):
    assert is_remote(path) == remote


@pytest.mark.parametrize("path", [_LOCAL, _REMOTE])
@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ETIMEDOUT, "Connection timed out"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset"),
        ConnectionError("gone"),
        TimeoutError("too slow"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
    ],
    ids=repr,
)
def test_what_may_pass_is_transient_wherever_the_file_is(error, path):
    assert is_transient(error, path)


@pytest.mark.parametrize("path", [_LOCAL, _REMOTE])
@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file"),
        PermissionError(errno.EACCES, "Permission denied"),
        IsADirectoryError(errno.EISDIR, "Is a directory"),
        ValueError("not a Parquet file"),
        pa.ArrowInvalid("Parquet magic bytes not found in footer"),
        OSError("When reading 'a': AWS Error ACCESS_DENIED during GetObject"),
        OSError("AWS Error NO_SUCH_KEY during GetObject operation"),
        OSError("AWS Error NO_SUCH_BUCKET during HeadObject operation"),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
def test_what_lasts_is_not_transient(error, path):
    assert not is_transient(error, path)


def test_an_io_error_without_a_number_may_pass_on_an_object_store_only():
    error = OSError("AWS Error SLOW_DOWN during GetObject operation")
    assert is_transient(error, _REMOTE)
    assert not is_transient(error, _LOCAL)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError(2, "No such file"), ice.FileMissingError),
        (OSError(errno.EIO, "Input/output error"), ice.TransientReadError),
        (OSError("Unexpected end of stream"), ice.CorruptFileError),
        (pa.ArrowInvalid("no magic bytes"), ice.CorruptFileError),
        (EOFError("short"), ice.CorruptFileError),
    ],
    ids=repr,
)
def test_a_failure_becomes_the_error_that_says_what_to_do(error, kind):
    named = typed_error(error, path=_LOCAL, split="0123", attempts=4)
    assert type(named) is kind
    assert (named.path, named.split) == (_LOCAL, "0123")
    assert _LOCAL in str(named)
    assert "0123" in str(named)


@pytest.mark.parametrize("error", [PermissionError(13, "no"), RuntimeError("odd")], ids=repr)
def test_any_other_failure_becomes_a_plain_read_error(error):
    named = typed_error(error, path=_LOCAL, split=None)
    assert type(named) is ice.ReadError
    assert str(error) in str(named)


def test_a_read_error_survives_pickling_with_its_path_and_split():
    named = typed_error(OSError(errno.EIO, "Input/output error"), path=_LOCAL, split="0123")
    again = pickle.loads(pickle.dumps(named))
    assert type(again) is ice.TransientReadError
    assert (again.path, again.split, str(again)) == (_LOCAL, "0123", str(named))


@pytest.mark.parametrize("retries", [-1, 1.5, True, "3", None])
def test_retries_that_are_no_whole_number_are_refused(retries):
    with pytest.raises(ice.InvalidArgumentError, match="retries"):
        RetryPolicy(retries=retries)


def test_a_negative_wait_is_refused():
    with pytest.raises(ice.InvalidArgumentError, match="retry_wait_seconds"):
        RetryPolicy(wait_seconds=-0.1)


def test_waits_double_up_to_ten_seconds():
    pauses = _Pauses()
    retried = []

    def fail() -> None:
        raise TimeoutError("too slow")

    with pytest.raises(ice.TransientReadError, match="9 attempts"):
        retrying(
            fail,
            path=_LOCAL,
            policy=RetryPolicy(8, 0.25),
            stopped=pauses,
            on_retry=lambda: retried.append(1),
        )
    assert pauses.seconds == [0.25, 0.5, 1, 2, 4, 8, 10, 10]
    assert len(retried) == 8


def test_what_succeeds_at_last_is_returned():
    attempts = []

    def succeed_the_third_time() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset")
        return "read"

    pauses = _Pauses()
    policy = RetryPolicy(3, 1)
    assert retrying(succeed_the_third_time, path=_LOCAL, policy=policy, stopped=pauses) == "read"
    assert pauses.seconds == [1, 2]


def test_nothing_is_tried_again_once_the_scan_was_stopped():
    stopped = threading.Event()
    attempts = []

    def fail() -> None:
        attempts.append(1)
        stopped.set()
        raise TimeoutError("too slow")

    with pytest.raises(ice.TransientReadError):
        retrying(fail, path=_LOCAL, policy=RetryPolicy(3, 1_000), stopped=stopped)
    assert len(attempts) == 1


def test_an_error_of_ours_passes_unchanged():
    raised = ice.CorruptFileError("damaged", path=_LOCAL)

    def fail() -> None:
        raise raised

    with pytest.raises(ice.CorruptFileError) as caught:
        retrying(fail, path=_REMOTE, policy=RetryPolicy(3, 1_000))
    assert caught.value is raised


def test_a_shared_file_is_opened_once_and_closed_with_its_last_user(catalog):
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    add_parquet_file(table, pa.table({"id": pa.array(range(10), pa.int64())}))
    io = watch(table)
    (path,) = data_file_paths(table)
    shared = SharedFile(io, path)
    handles = [shared.acquire() for _ in range(3)]
    assert handles[0] is handles[1] is handles[2]
    assert io.opened == [path]
    shared.release()
    shared.release()
    assert not handles[0].closed
    shared.release()
    assert handles[0].closed
    again = shared.acquire()
    assert not again.closed
    assert io.opened == [path, path]
    shared.release()


def test_a_file_like_object_of_another_file_io_can_be_read_at_random(catalog):
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    add_parquet_file(table, pa.table({"id": pa.array(range(10), pa.int64())}))
    io = watch(table)
    io.on_read = lambda path, offset, length: None
    (path,) = data_file_paths(table)
    with open_file(io, path) as handle:
        assert isinstance(handle, pa.PythonFile)
        assert handle.read_at(4, 0) == b"PAR1"
        assert handle.read_at(4, handle.size() - 4) == b"PAR1"
