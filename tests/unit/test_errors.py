"""The error tree: as its docstring draws it, complete, and whole after crossing a process."""

from __future__ import annotations

import base64
import copy
import inspect
import multiprocessing
import os
import pickle
import re
from concurrent.futures import ProcessPoolExecutor

import pytest

import icestream
from icestream import errors
from icestream.spark.tasks.task_notes import driver_error, note_error

_ALL = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, errors.IcestreamError)
]
_BUILT_INS = {
    errors.InvalidArgumentError: ValueError,
    errors.MemoryBudgetError: MemoryError,
    errors.MissingExtraError: ImportError,
    errors.SchemaMismatchError: ValueError,
    errors.InvalidDataError: ValueError,
}


def _make(kind: type[errors.IcestreamError]) -> errors.IcestreamError:
    if issubclass(kind, errors.MemoryBudgetError):
        return kind("too small", needed_bytes=200, limit_bytes=100)
    if issubclass(kind, errors.ReadError):
        return kind("unreadable", path="s3://bucket/ü.parquet", split="0123abcd")
    if issubclass(kind, errors.SchemaMismatchError):
        return kind("does not fit", differences=("column 'a' is missing",))
    if issubclass(kind, errors.DuplicateKeysError):
        return kind("twice", column="a", examples=("a = 1",))
    if issubclass(kind, errors.InvalidDataError):
        return kind("null", column="a.b")
    if issubclass(kind, (errors.WriteError, errors.CredentialsExpiredError)):
        return kind("disk full", path="s3://bucket/ü.parquet")
    if issubclass(kind, errors.CommitUnknownError):
        return kind("no answer", snapshot_id=7)
    if issubclass(kind, errors.RunFailedError):
        return kind("failed", failed=("orders",), report={"run": 1})
    return kind("what happened")


each_error = pytest.mark.parametrize("kind", _ALL, ids=lambda kind: kind.__name__)


def _drawn() -> dict[str, str | None]:
    """Each error of the docstring's tree, and the one above it."""
    above: dict[int, str] = {}
    tree: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)(\w+Error)\b", line)
        if found:
            depth = len(found.group(1))
            tree[found.group(2)] = above.get(depth - 4)
            above[depth] = found.group(2)
    return tree


def test_the_tree_is_as_the_docstring_draws_it() -> None:
    actual = {
        kind.__name__: next(
            (base.__name__ for base in kind.__bases__ if base.__module__ == errors.__name__), None
        )
        for kind in _ALL
    }
    assert _drawn() == actual
    assert actual["IcestreamError"] is None
    assert actual["UnknownColumnError"] == "InvalidArgumentError"
    assert actual["TransientReadError"] == "ReadError"


def test_the_docstring_names_the_built_in_errors_that_ours_are_too() -> None:
    for kind, built_in in _BUILT_INS.items():
        assert issubclass(kind, built_in)
        assert f"{kind.__name__} ({built_in.__name__})" in (errors.__doc__ or "")
    for kind in _ALL:
        expected = {b for k, b in _BUILT_INS.items() if issubclass(kind, k)}
        others = {ValueError, MemoryError, ImportError, OSError, TypeError} - expected
        assert not any(issubclass(kind, other) for other in others)


def test_every_error_is_public() -> None:
    assert {kind.__name__ for kind in _ALL} <= set(icestream.__all__)


@each_error
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling_with_its_attributes(
    kind: type[errors.IcestreamError], protocol: int
) -> None:
    error = _make(kind)
    for again in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@each_error
def test_an_error_of_a_task_comes_out_of_sparks_text_with_its_attributes(
    kind: type[errors.IcestreamError],
) -> None:
    error = _make(kind)
    with pytest.raises(kind) as caught, note_error():
        raise error
    told = RuntimeError("\n".join(["Traceback", *caught.value.__notes__, "Driver stacktrace:"]))
    again = driver_error(told, what="the job")
    assert (type(again), str(again)) == (kind, str(error))
    unplain = ("__notes__", "report")
    assert {n: v for n, v in vars(again).items() if n not in unplain} == {
        n: v for n, v in vars(error).items() if n not in unplain
    }


class _Forged:
    """Code, if it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("import os; os.environ['ICESTREAM_FORGED'] = 'yes'",)


@pytest.mark.parametrize(
    "forged",
    [
        pickle.dumps(_Forged()),
        b"no JSON",
        b"7",
        b'["os", "x", {}]',
        b'["annotations", "x", {}]',
        b'["ReadError", "x", {"code": 1}]',
        b'[["ReadError"], "x", {}]',
    ],
)
def test_a_value_of_a_row_that_looks_like_a_task_error_is_text(forged: bytes) -> None:
    value = base64.b64encode(forged).decode("ascii")
    error = ValueError(f"the value 'icestream-error: {value}' can't be cast to BIGINT")
    assert driver_error(error, what="the job") is error
    assert "ICESTREAM_FORGED" not in os.environ


def test_an_error_without_a_split_survives_too() -> None:
    error = errors.FileMissingError("gone", path="p")
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.split) == ("p", None)


def test_the_notes_of_an_error_survive_pickling() -> None:
    error = errors.FileMissingError("gone", path="p")
    error.add_note("while reading db.t")
    again = pickle.loads(pickle.dumps(error))
    assert (again.path, again.__notes__) == ("p", ["while reading db.t"])


@each_error
def test_an_error_is_caught_as_its_base_and_shows_its_message(
    kind: type[errors.IcestreamError],
) -> None:
    error = _make(kind)
    with pytest.raises(errors.IcestreamError, match=re.escape(str(error.args[0]))) as caught:
        raise error
    assert str(caught.value) == error.args[0]


def _raise_in_worker() -> None:
    raise errors.CorruptFileError("damaged", path="a", split="b")


def test_an_error_comes_back_from_another_process() -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        error = pool.submit(_raise_in_worker).exception()
    assert isinstance(error, errors.CorruptFileError)
    assert (str(error), error.path, error.split) == ("damaged", "a", "b")
