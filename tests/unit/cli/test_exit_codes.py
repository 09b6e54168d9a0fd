"""Errors become one line on stderr, and an exit code by kind."""

from __future__ import annotations

import click
import pytest
from pyiceberg.exceptions import ServiceUnavailableError
from pyiceberg.table import Table

import icestream as ice
from icestream import errors
from icestream.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
from tests.unit.cli.conftest import Run


def _because_of(cause: Exception) -> errors.RunFailedError:
    error = errors.RunFailedError("x", failed=("orders",))
    error.__cause__ = cause
    return error


_CASES: list[tuple[BaseException, int]] = [
    (errors.InvalidArgumentError("x"), 2),
    (errors.UnknownColumnError("x"), 2),
    (click.UsageError("x"), 2),
    (errors.InvalidDataError("x", column="a"), 3),
    (errors.DuplicateKeysError("x", column="a", examples=()), 3),
    (errors.SourceError("x"), 3),
    (errors.SchemaMismatchError("x", differences=()), 4),
    (errors.ProjectionError("x", path="p"), 4),
    (errors.CommitConflictError("x"), 5),
    (errors.CommitError("x"), 5),
    (errors.StreamError("x"), 5),
    (errors.CommitUnknownError("x", snapshot_id=1), 6),
    (errors.MemoryBudgetError("x", needed_bytes=2, limit_bytes=1), 7),
    (errors.CatalogError("x"), 8),
    (errors.FileMissingError("x", path="p"), 8),
    (errors.WriteError("x", path="p"), 8),
    (errors.CredentialsExpiredError("x", path="p"), 8),
    (OSError("x"), 8),
    (ServiceUnavailableError("x"), 8),
    (errors.MissingExtraError("x"), 9),
    (errors.UnsupportedFeatureError("x"), 10),
    (errors.TaskFailedError("x"), 11),
    (errors.ChecksFailedError("x"), 12),
    (_because_of(errors.SourceError("y")), 3),
    (errors.WriterClosedError("x"), 1),
    (RuntimeError("x"), 1),
]


@pytest.mark.parametrize(("error", "code"), _CASES, ids=lambda case: type(case).__name__)
def test_each_kind_of_error_has_its_code(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(ice, "health", fail)
    shown = run("health", "shop.orders", "-q")
    assert shown.exit_code == code
    assert shown.stdout == ""
    assert shown.stderr.startswith("icestream: ")
    assert shown.stderr.count("\n") == 1


def test_every_error_of_the_library_but_its_base_has_been_thought_of() -> None:
    tried = {type(error) for error, _ in _CASES}
    known = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    base = {errors.IcestreamError, errors.ScanClosedError, errors.ReadError}
    alike = {errors.CorruptFileError, errors.TransientReadError}
    assert known - base - alike <= tried


def test_every_code_is_in_the_help(run: Run) -> None:
    shown = run("--help").stdout
    for code in ExitCode:
        assert f"{code:>5}  {MEANINGS[code]}" in shown
    assert exit_code_of(ValueError()) == ExitCode.INTERNAL
