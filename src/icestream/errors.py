"""All errors that icestream raises, grouped by what a handler would do.

```
IcestreamError
├── InvalidArgumentError (ValueError)    change the call: memory, batch size, filter, ...
│   └── UnknownColumnError               ... a column is not in the schema
├── MemoryBudgetError (MemoryError)      raise `memory`: see needed_bytes and limit_bytes
├── SchemaMismatchError (ValueError)     cast the stream or change schema_mode: see differences
├── InvalidDataError (ValueError)        fix a value (null, overflow, out of range): see column
│   └── DuplicateKeysError               ... several rows of a merge have one key: see examples
├── SourceError                          a source file is missing or can't be read
├── UnsupportedFeatureError              the table uses a feature that icestream does not support
├── MissingExtraError (ImportError)      `pip install` the extra that the message names
├── CatalogError                         the catalog or the table's metadata could not be read
├── ReadError                            a file of the table could not be read: see path and split
│   ├── FileMissingError                 ... the table refers to it, but it does not exist
│   ├── CorruptFileError                 ... it is damaged, truncated or in another format
│   ├── ProjectionError                  ... its schema can't be projected to the table's schema
│   └── TransientReadError               ... all retries failed: try again later
├── WriteError                           a file could not be written; written files were deleted
├── CredentialsExpiredError              the store's credentials expired: load the table again
├── TaskFailedError                      a task on a cluster failed in all attempts: see the cause
├── StreamError                          a stream can't continue from its checkpoint
├── RunFailedError                       loads of a pipeline failed: see failed and report
│   └── ChecksFailedError                ... their checks failed: their results are not published
├── CommitError                          the commit failed, or its outcome is unknown
│   ├── CommitConflictError              ... another change conflicts; written files were deleted
│   └── CommitUnknownError               ... outcome unknown: look for snapshot_id; files are kept
├── ScanClosedError                      the scan was used after it was closed
└── WriterClosedError                    a writer was used after it ended
```
"""

from __future__ import annotations


class IcestreamError(Exception):
    """Base class of all errors that icestream raises."""

    def __reduce__(self) -> tuple[object, ...]:
        attributes = {key: value for key, value in vars(self).items() if key != "__notes__"}
        return _rebuild, (type(self), str(self), attributes), vars(self)


def _rebuild(
    kind: type[IcestreamError], message: str, attributes: dict[str, object]
) -> IcestreamError:
    """Unpickle an error: its attributes are the keyword arguments of its class."""
    return kind(message, **attributes)


class InvalidArgumentError(IcestreamError, ValueError):
    """An argument is not valid.

    Attributes:
        text: The text of a filter, if the mistake is in one.
        position: The index of the wrong character in the text, from 0.
    """

    def __init__(
        self, message: str = "", *, text: str | None = None, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.text = text
        self.position = position


class UnknownColumnError(InvalidArgumentError):
    """A requested column is not in the schema."""


class MemoryBudgetError(IcestreamError, MemoryError):
    """The operation needs more memory than the limit allows.

    Attributes:
        needed_bytes: A limit that is large enough.
        limit_bytes: The current limit.
    """

    def __init__(self, message: str, *, needed_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes
        self.limit_bytes = limit_bytes


class SchemaMismatchError(IcestreamError, ValueError):
    """The columns of the stream do not match those of the table.

    Attributes:
        differences: Each difference, as a sentence.
    """

    def __init__(self, message: str, *, differences: tuple[str, ...]) -> None:
        super().__init__(message)
        self.differences = differences


class InvalidDataError(IcestreamError, ValueError):
    """A value of the stream can't be stored in the table.

    Attributes:
        column: The column. Names of nested columns are joined with dots.
    """

    def __init__(self, message: str, *, column: str) -> None:
        super().__init__(message)
        self.column = column


class DuplicateKeysError(InvalidDataError):
    """Several rows of a stream have the same key, and no rule says which of them to use.

    Attributes:
        examples: Some of the duplicate keys, as text.
    """

    def __init__(self, message: str, *, column: str, examples: tuple[str, ...]) -> None:
        super().__init__(message, column=column)
        self.examples = examples


class SourceError(IcestreamError):
    """A source file is missing or can't be read. The message names it."""


class UnsupportedFeatureError(IcestreamError):
    """The table uses a feature that icestream does not support."""


class MissingExtraError(IcestreamError, ImportError):
    """An optional dependency is not installed."""


class CatalogError(IcestreamError):
    """The catalog or the table's metadata could not be read."""


class ReadError(IcestreamError):
    """A file of the table could not be read.

    Attributes:
        path: The file.
        split: The id of the split that was being read, if any.
    """

    def __init__(self, message: str, *, path: str, split: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.split = split


class FileMissingError(ReadError):
    """A file that the table refers to does not exist."""


class CorruptFileError(ReadError):
    """A file is damaged, truncated or not in its declared format."""


class ProjectionError(ReadError):
    """A file's schema can't be projected to the table's schema."""


class TransientReadError(ReadError):
    """Storage failed in the first attempt and in all retries."""


class ScanClosedError(IcestreamError):
    """A scan was used after it had been closed or consumed."""


class WriteError(IcestreamError):
    """A file could not be written. icestream has deleted the files of this write.

    Attributes:
        path: The file.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class CredentialsExpiredError(IcestreamError):
    """Credentials for storage have expired and could not be renewed. Load the table again.

    icestream asks the catalog for new credentials first, if this process has the catalog. It has
    deleted the files of a write, as far as that was possible.

    Attributes:
        path: The file that could not be read or written.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class TaskFailedError(IcestreamError):
    """A task of a job failed in all its attempts. The files of the write have been deleted."""


class StreamError(IcestreamError):
    """A stream can't continue from its checkpoint. The message says why, and what would help."""


class RunFailedError(IcestreamError):
    """Loads of a pipeline failed. The first error is the cause.

    Attributes:
        failed: The names of the loads that failed.
        report: The `RunReport` with the result of each load. None while the run goes on.
    """

    def __init__(
        self, message: str, *, failed: tuple[str, ...] = (), report: object | None = None
    ) -> None:
        super().__init__(message)
        self.failed = failed
        self.report = report


class ChecksFailedError(RunFailedError):
    """Checks on the result of a load failed. The result was not published."""


class CommitError(IcestreamError):
    """A commit failed, or its outcome is unknown."""


class CommitConflictError(CommitError):
    """A commit conflicts with a concurrent one. The files of the write have been deleted."""


class CommitUnknownError(CommitError):
    """The catalog did not answer, and the snapshot could not be looked up. No file was deleted.

    Attributes:
        snapshot_id: The snapshot to look for. If the table has it, the commit succeeded.
    """

    def __init__(self, message: str, *, snapshot_id: int) -> None:
        super().__init__(message)
        self.snapshot_id = snapshot_id


class WriterClosedError(IcestreamError):
    """A writer was used after it had been closed or aborted."""
