"""Exit codes of the command line: one for each kind of failure."""

from __future__ import annotations

import errno
import re
from enum import IntEnum

import click

from icestream import errors


class ExitCode(IntEnum):
    """The exit codes. They do not change between versions."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    INPUT = 3
    SCHEMA = 4
    CONFLICT = 5
    UNKNOWN_COMMIT = 6
    MEMORY = 7
    STORAGE = 8
    MISSING_EXTRA = 9
    UNSUPPORTED = 10
    TASK_FAILED = 11
    CHECKS_FAILED = 12
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.INTERNAL: "a bug in icestream: run the command again with --debug",
    ExitCode.USAGE: "invalid call: an option, a filter or an unknown column",
    ExitCode.INPUT: "invalid input: an unreadable file, a null or duplicate key, a bad value",
    ExitCode.SCHEMA: "schema mismatch: columns that do not fit the table's",
    ExitCode.CONFLICT: "conflict: other writers changed the same rows; the table is unchanged",
    ExitCode.UNKNOWN_COMMIT: "unknown outcome: look for the snapshot that the message names",
    ExitCode.MEMORY: "--memory is too small: the message says how much is needed",
    ExitCode.STORAGE: "catalog or storage error: unknown table, missing or damaged file, full disk",
    ExitCode.MISSING_EXTRA: "an optional package is not installed",
    ExitCode.UNSUPPORTED: "the table uses a feature that icestream does not support",
    ExitCode.TASK_FAILED: "a task on a cluster failed permanently",
    ExitCode.CHECKS_FAILED: "a test on the result failed: nothing was published",
    ExitCode.INTERRUPTED: "Ctrl-C: the table is unchanged unless the message says otherwise",
    ExitCode.TERMINATED: "SIGTERM: the table is unchanged unless the message says otherwise",
}

# The first class that matches counts.
_KINDS: tuple[tuple[type[BaseException], ExitCode], ...] = (
    (click.UsageError, ExitCode.USAGE),
    (errors.InvalidArgumentError, ExitCode.USAGE),
    (errors.InvalidDataError, ExitCode.INPUT),
    (errors.SourceError, ExitCode.INPUT),
    (errors.SchemaMismatchError, ExitCode.SCHEMA),
    (errors.ProjectionError, ExitCode.SCHEMA),
    (errors.CommitUnknownError, ExitCode.UNKNOWN_COMMIT),
    (errors.CommitError, ExitCode.CONFLICT),
    (errors.StreamError, ExitCode.CONFLICT),
    (errors.MemoryBudgetError, ExitCode.MEMORY),
    (errors.CatalogError, ExitCode.STORAGE),
    (errors.ReadError, ExitCode.STORAGE),
    (errors.WriteError, ExitCode.STORAGE),
    (errors.CredentialsExpiredError, ExitCode.STORAGE),
    (errors.MissingExtraError, ExitCode.MISSING_EXTRA),
    (errors.UnsupportedFeatureError, ExitCode.UNSUPPORTED),
    (errors.TaskFailedError, ExitCode.TASK_FAILED),
    (errors.ChecksFailedError, ExitCode.CHECKS_FAILED),
    (OSError, ExitCode.STORAGE),
)
_DISK_FULL = re.compile(r"(?i)no space left on device|disk is full|disk quota exceeded")
# Errors of these packages are about the catalog or the storage.
_PACKAGES = ("pyiceberg", "sqlalchemy", "requests", "urllib3", "botocore")


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code for an error. A failed run has the code of its first failed load."""
    if type(error) is errors.RunFailedError and error.__cause__ is not None:
        return exit_code_of(error.__cause__)
    if is_disk_full(error) and not isinstance(error, errors.CommitUnknownError):
        return ExitCode.STORAGE
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return code
    if type(error).__module__.partition(".")[0] in _PACKAGES:
        return ExitCode.STORAGE
    return ExitCode.INTERNAL


def is_disk_full(error: BaseException) -> bool:
    """Whether a full disk caused an error."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        if getattr(cause, "errno", None) == errno.ENOSPC or _DISK_FULL.search(str(cause)):
            return True
        seen.append(cause)
        cause = cause.__cause__
    return False


def listing() -> str:
    """List all codes and their meanings, for `--help`."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
