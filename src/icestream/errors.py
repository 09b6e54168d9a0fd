"""Every error icestream raises, grouped by what a handler would do.

```
IcestreamError
├── InvalidArgumentError (ValueError)    change the call: bad memory, batch size, filter
│   └── UnknownColumnError               ... a column that the schema does not have
├── MemoryBudgetError (MemoryError)      raise `memory`: carries needed_bytes and limit_bytes
├── UnsupportedFeatureError              the table uses something icestream does not read
├── MissingExtraError (ImportError)      `pip install` the extra that the message names
├── CatalogError                         the catalog or the table's metadata could not be read
├── ReadError                            a file could not be read: carries path and split
│   ├── FileMissingError                 ... it is gone, but the table refers to it
│   ├── CorruptFileError                 ... it is there but damaged, truncated or not of its format
│   ├── ProjectionError                  ... its schema can't be projected to the table's
│   └── TransientReadError               ... storage kept failing after every retry: try again later
└── ScanClosedError                      the scan was used after it was closed
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
