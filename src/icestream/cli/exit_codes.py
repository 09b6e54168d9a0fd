"""What a shell is told: one exit code for each kind of failure."""

from __future__ import annotations

from enum import IntEnum

import click

from icestream import errors


class ExitCode(IntEnum):
    """The exit codes, which stay as they are."""

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
    ExitCode.OK: "done",
    ExitCode.INTERNAL: "a defect of icestream's: run it again with --debug",
    ExitCode.USAGE: "the call: an option, a filter, a column that is not there",
    ExitCode.INPUT: "the input: a file that can't be read, a null or doubled key, a bad value",
    ExitCode.SCHEMA: "the schema: columns that do not fit the table's",
    ExitCode.CONFLICT: "others changed the same rows, or the commit was refused: no change",
    ExitCode.UNKNOWN_COMMIT: "the catalog gave no answer: look for the snapshot that is named",
    ExitCode.MEMORY: "--memory is too small: the message says how much is needed",
    ExitCode.STORAGE: "the catalog or storage: no such table, a file missing or damaged, disk full",
    ExitCode.MISSING_EXTRA: "something optional is not installed",
    ExitCode.UNSUPPORTED: "the table uses something that icestream does not do",
    ExitCode.TASK_FAILED: "a task on a cluster failed for good",
    ExitCode.CHECKS_FAILED: "a test on the result failed: nothing was published",
    ExitCode.INTERRUPTED: "Ctrl-C: nothing is changed, unless the message says so",
    ExitCode.TERMINATED: "SIGTERM: the same",
}

# The first that fits counts.
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
# Errors of theirs that come through are about the catalog or storage.
_PACKAGES = ("pyiceberg", "sqlalchemy", "requests", "urllib3", "botocore")


def exit_code_of(error: BaseException) -> ExitCode:
    """The exit code for an error; for a run that failed, that of the load that failed first."""
    if type(error) is errors.RunFailedError and error.__cause__ is not None:
        return exit_code_of(error.__cause__)
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return code
    if type(error).__module__.partition(".")[0] in _PACKAGES:
        return ExitCode.STORAGE
    return ExitCode.INTERNAL


def listing() -> str:
    """All codes and what they mean, for `--help`."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
