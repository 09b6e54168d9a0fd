"""Every error icestream raises, grouped by what a handler would do.

```
IcestreamError
├── InvalidArgumentError (ValueError)    change the call: bad memory, batch size, filter
│   └── UnknownColumnError               ... a column that the schema does not have
├── MemoryBudgetError (MemoryError)      raise `memory`: carries needed_bytes and limit_bytes
├── SchemaMismatchError (ValueError)     cast the stream, or choose another schema_mode: differences
├── InvalidDataError (ValueError)        mend a value: null, overflow, out of range; carries column
│   └── DuplicateKeysError               ... rows to be merged have the same key; carries examples
├── SourceError                          a file that was to be loaded is missing, or can't be read
├── UnsupportedFeatureError              the table uses something icestream does not do
├── MissingExtraError (ImportError)      `pip install` the extra that the message names
├── CatalogError                         the catalog or the table's metadata could not be read
├── ReadError                            a file could not be read: carries path and split
│   ├── FileMissingError                 ... it is gone, but the table refers to it
│   ├── CorruptFileError                 ... it is there but damaged, truncated or not of its format
│   ├── ProjectionError                  ... its schema can't be projected to the table's
│   └── TransientReadError               ... storage kept failing after every retry: try again later
├── WriteError                           a file could not be written: carries path; nothing is left
├── CredentialsExpiredError              the store's credentials are too old: load the table again
├── TaskFailedError                      a task on a cluster failed for good: the cause says why
├── StreamError                          a stream can't go on from its checkpoint: the table changed
├── RunFailedError                       loads of a pipeline failed: carries their names, and report
│   └── ChecksFailedError                ... by tests on their results: nothing of them is published
├── CommitError                          the commit did not happen, or it is not known
│   ├── CommitConflictError              ... refused beside another change: nothing is left
│   └── CommitUnknownError               ... not known: look for snapshot_id; no file was deleted
├── ScanClosedError                      the scan was used after it was closed
└── WriterClosedError                    a writer was used after it ended
```
"""

from __future__ import annotations


class IcestreamError(Exception):
    """Base of every error that icestream raises on purpose."""


class InvalidArgumentError(IcestreamError, ValueError):
    """An argument can't be used as given."""


class UnknownColumnError(InvalidArgumentError):
    """A column that was asked for is not in the schema."""


class MemoryBudgetError(IcestreamError, MemoryError):
    """The memory limit is below what the work needs.

    Attributes:
        needed_bytes: What was measured to be needed.
        limit_bytes: What was allowed.
    """

    def __init__(self, message: str, *, needed_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.limit_bytes = limit_bytes

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_budget_error, (str(self), self.needed_bytes, self.limit_bytes)


def _rebuild_budget_error(message: str, needed: int, limit: int) -> MemoryBudgetError:
    return MemoryBudgetError(message, needed_bytes=needed, limit_bytes=limit)


class SchemaMismatchError(IcestreamError, ValueError):
    """The stream's columns do not fit the table's.

    Attributes:
        differences: Each difference, as a sentence.
    """

    def __init__(self, message: str, *, differences: tuple[str, ...]) -> None:
        super().__init__(message)
        self.differences = differences

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_mismatch, (str(self), self.differences)


def _rebuild_mismatch(message: str, differences: tuple[str, ...]) -> SchemaMismatchError:
    return SchemaMismatchError(message, differences=differences)


class InvalidDataError(IcestreamError, ValueError):
    """A value of the stream can't be stored.

    Attributes:
        column: The column, with dots for nested ones.
    """

    def __init__(self, message: str, *, column: str) -> None:
        super().__init__(message)
        self.column = column

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_invalid_data, (str(self), self.column)


def _rebuild_invalid_data(message: str, column: str) -> InvalidDataError:
    return InvalidDataError(message, column=column)


class DuplicateKeysError(InvalidDataError):
    """Rows of a stream have the same key, and nothing says which of them counts.

    Attributes:
        examples: Some of the keys, as text.
    """

    def __init__(self, message: str, *, column: str, examples: tuple[str, ...]) -> None:
        super().__init__(message, column=column)
        self.examples = examples

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_duplicate_keys, (str(self), self.column, self.examples)


def _rebuild_duplicate_keys(
    message: str, column: str, examples: tuple[str, ...]
) -> DuplicateKeysError:
    return DuplicateKeysError(message, column=column, examples=examples)


class SourceError(IcestreamError):
    """A file that was to be loaded is missing, or can't be read. The message says which."""


class UnsupportedFeatureError(IcestreamError):
    """The table uses a feature that icestream does not support."""


class MissingExtraError(IcestreamError, ImportError):
    """An optional dependency is not installed."""


class CatalogError(IcestreamError):
    """The catalog, or the table's metadata, could not be read."""


class ReadError(IcestreamError):
    """A file of the table could not be read.

    Attributes:
        path: The file.
        split: The id of the split being read, if one was.
    """

    def __init__(self, message: str, *, path: str, split: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.split = split

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_read_error, (type(self), str(self), self.path, self.split)


def _rebuild_read_error(
    kind: type[ReadError], message: str, path: str, split: str | None
) -> ReadError:
    return kind(message, path=path, split=split)


class FileMissingError(ReadError):
    """A file that the table refers to does not exist."""


class CorruptFileError(ReadError):
    """A file is damaged, truncated, or not of the format it claims."""


class ProjectionError(ReadError):
    """A file's schema can't be projected to the table's schema."""


class TransientReadError(ReadError):
    """Storage kept failing until the retries were used up."""


class ScanClosedError(IcestreamError):
    """A scan was used after it had been closed or consumed."""


class WriteError(IcestreamError):
    """A file could not be written. The files of the write have been deleted.

    Attributes:
        path: The file.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_write_error, (str(self), self.path)


def _rebuild_write_error(message: str, path: str) -> WriteError:
    return WriteError(message, path=path)


class CredentialsExpiredError(IcestreamError):
    """Credentials for storage have expired, and there are no new ones. Load the table again.

    In this process icestream asks the catalog for new ones first. Files of a write have been
    deleted, as far as that was possible.

    Attributes:
        path: The file that could not be read or written.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_expired, (str(self), self.path)


def _rebuild_expired(message: str, path: str) -> CredentialsExpiredError:
    return CredentialsExpiredError(message, path=path)


class TaskFailedError(IcestreamError):
    """A task of a job failed as often as it may. The files of the write have been deleted."""


class StreamError(IcestreamError):
    """A stream can't go on from where it stands. The message says why, and what would help."""


class RunFailedError(IcestreamError):
    """Loads of a pipeline failed. The error of the first of them is the cause.

    Attributes:
        failed: The names of the loads.
        report: What became of each load, as a `RunReport`; None while the run goes on.
    """

    def __init__(
        self, message: str, *, failed: tuple[str, ...] = (), report: object | None = None
    ) -> None:
        super().__init__(message)
        self.failed = failed
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_run_failed, (type(self), str(self), self.failed, self.report)


def _rebuild_run_failed(
    kind: type[RunFailedError], message: str, failed: tuple[str, ...], report: object | None
) -> RunFailedError:
    return kind(message, failed=failed, report=report)


class ChecksFailedError(RunFailedError):
    """Tests on the result of a load failed: nothing of it was published."""


class CommitError(IcestreamError):
    """A commit did not happen, or it is not known whether it did."""


class CommitConflictError(CommitError):
    """A commit was refused because of another one. The files of the write have been deleted."""


class CommitUnknownError(CommitError):
    """The catalog gave no answer, and the snapshot could not be looked up. No file was deleted.

    Attributes:
        snapshot_id: What to look for in the table: if it is there, the commit happened.
    """

    def __init__(self, message: str, *, snapshot_id: int) -> None:
        super().__init__(message)
        self.snapshot_id = snapshot_id

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_unknown, (str(self), self.snapshot_id)


def _rebuild_unknown(message: str, snapshot_id: int) -> CommitUnknownError:
    return CommitUnknownError(message, snapshot_id=snapshot_id)


class WriterClosedError(IcestreamError):
    """A writer was used after it had been closed or aborted."""
