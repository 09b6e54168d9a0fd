"""The write methods of PyIceberg's transactions. icestream's verbs do the work."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ValidationException,
)
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, translate_column_names
from pyiceberg.schema import Schema
from pyiceberg.table import Table, UpsertResult
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import StructType

from icestream.catalogs._pyiceberg.late_transaction import LateTransaction
from icestream.errors import (
    CommitConflictError,
    CommitUnknownError,
    DuplicateKeysError,
    InvalidArgumentError,
)
from icestream.memory.budget import MemoryBudget
from icestream.operations.append import append
from icestream.operations.delete import delete
from icestream.operations.merge.merge import merge
from icestream.operations.overwrite import overwrite
from icestream.read.filters.fitting import parse_filter
from icestream.read.filters.parser import ParsedFilter

_ALL_ROWS = AlwaysTrue()


class TableConflictError(CommitConflictError, CommitFailedException, ValidationException):
    """Another commit conflicts. Handlers for PyIceberg's errors catch it, too."""


class TableCommitUnknownError(CommitUnknownError, CommitStateUnknownException):
    """The outcome of a commit is unknown. Handlers for PyIceberg's error catch it, too."""


@contextmanager
def pyiceberg_errors() -> Iterator[None]:
    """Raise errors of commits in a form that handlers for PyIceberg's errors catch as well."""
    try:
        yield
    except CommitConflictError as error:
        if isinstance(error, CommitFailedException):
            raise
        raise TableConflictError(str(error)) from error
    except CommitUnknownError as error:
        raise TableCommitUnknownError(str(error), snapshot_id=error.snapshot_id) from error


class StreamingWrites(LateTransaction):
    """The write methods of a PyIceberg transaction, with the same signatures.

    Each sees the changes before it. With `branch=None` PyIceberg's own code makes a snapshot that
    belongs to no branch.
    """

    memory: int | str | MemoryBudget

    def append(
        self,
        df: Any,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Append a stream.

        Args:
            df: Any Arrow stream: a table, reader, iterator of batches, or a DataFrame.
            snapshot_properties: Properties for the snapshot's summary.
            branch: The branch that gets the snapshot; it must exist.
        """
        if branch is None:
            super().append(df, snapshot_properties, branch)
        else:
            with pyiceberg_errors():
                append(self, df, **self._options(snapshot_properties, branch))

    def overwrite(
        self,
        df: Any,
        overwrite_filter: BooleanExpression | str = _ALL_ROWS,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Replace rows with those of a stream.

        Args:
            df: Any Arrow stream: a table, reader, iterator of batches, or a DataFrame.
            overwrite_filter: The rows to replace.
            snapshot_properties: Properties for the snapshot's summary.
            case_sensitive: Whether names in the filter are case-sensitive.
            branch: The branch that gets the snapshot; it must exist.
        """
        if branch is None:
            super().overwrite(df, overwrite_filter, snapshot_properties, case_sensitive, branch)
            return
        where = self._exact_names(overwrite_filter, case_sensitive)
        options = self._options(snapshot_properties, branch)
        with pyiceberg_errors():
            if where == AlwaysFalse():
                append(self, df, **options)
            else:
                overwrite(self, df, where=None if where == _ALL_ROWS else where, **options)

    def dynamic_partition_overwrite(
        self,
        df: Any,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Replace the partitions that a stream has rows for.

        Args:
            df: Any Arrow stream: a table, reader, iterator of batches, or a DataFrame.
            snapshot_properties: Properties for the snapshot's summary.
            branch: The branch that gets the snapshot; it must exist.
        """
        if branch is None:
            super().dynamic_partition_overwrite(df, snapshot_properties, branch)
            return
        if self.staged_metadata.spec().is_unpartitioned():
            raise InvalidArgumentError(
                "Cannot apply dynamic overwrite on an unpartitioned table. Call overwrite instead"
            )
        options = self._options(snapshot_properties, branch)
        with pyiceberg_errors():
            overwrite(self, df, partitions="dynamic", **options)

    def delete(
        self,
        delete_filter: str | BooleanExpression,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        _isolation_operation: Operation | None = None,
    ) -> None:
        """Delete the rows that match a filter.

        Args:
            delete_filter: The rows to delete.
            snapshot_properties: Properties for the snapshot's summary.
            case_sensitive: Whether names in the filter are case-sensitive.
            branch: The branch that gets the snapshot; it must exist.
            _isolation_operation: What PyIceberg passes on when it calls this method itself.
        """
        if branch is None:
            super().delete(
                delete_filter, snapshot_properties, case_sensitive, branch, _isolation_operation
            )
            return
        where = self._exact_names(delete_filter, case_sensitive)
        with pyiceberg_errors():
            report = delete(self, where, **self._options(snapshot_properties, branch))
        if not report.rows_deleted and not report.files_removed:
            warnings.warn("Delete operation did not match any records", stacklevel=2)

    def upsert(
        self,
        df: Any,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        snapshot_properties: dict[str, str] = EMPTY_DICT,
    ) -> UpsertResult:
        """Update the rows that have the same key as a row of a stream, and insert the others.

        Args:
            df: Any Arrow stream: a table, reader, iterator of batches, or a DataFrame.
            join_cols: The key; the table's identifier fields by default.
            when_matched_update_all: Whether to update rows that match.
            when_not_matched_insert_all: Whether to insert rows that match nothing.
            case_sensitive: Whether names in `join_cols` are case-sensitive.
            branch: The branch that gets the snapshot; it must exist.
            snapshot_properties: Properties for the snapshot's summary.

        Returns:
            The number of rows updated and inserted.
        """
        if branch is None:
            return super().upsert(
                df,
                join_cols,
                when_matched_update_all,
                when_not_matched_insert_all,
                case_sensitive,
                branch,
                snapshot_properties,
            )
        if not when_matched_update_all and not when_not_matched_insert_all:
            raise InvalidArgumentError(
                "when_matched_update_all and when_not_matched_insert_all are both False: set at "
                "least one of them"
            )
        try:
            with pyiceberg_errors():
                report = merge(
                    self,
                    df,
                    on=self._keys(join_cols, case_sensitive),
                    when_matched="update" if when_matched_update_all else "ignore",
                    when_not_matched="insert" if when_not_matched_insert_all else "ignore",
                    **self._options(snapshot_properties, branch),
                )
        except DuplicateKeysError as error:
            raise DuplicateKeysError(
                "Duplicate rows found in source dataset based on the key columns. No upsert "
                f"executed. Remove the duplicates ({', '.join(error.examples)}), or call "
                "icestream.merge with on_duplicate='last'",
                column=error.column,
                examples=error.examples,
            ) from error
        return UpsertResult(rows_updated=report.rows_updated, rows_inserted=report.rows_inserted)

    def commit_transaction(self) -> Table:
        """Commit all changes to the catalog.

        Returns:
            The table, with the changes.
        """
        with pyiceberg_errors():
            return super().commit_transaction()

    def _options(self, properties: Mapping[str, str], branch: str | None) -> dict[str, Any]:
        return {"memory": self.memory, "branch": branch, "properties": properties}

    def _exact_names(
        self, row_filter: str | BooleanExpression, case_sensitive: bool
    ) -> BooleanExpression:
        parsed = parse_filter(row_filter)
        expression = parsed.expression if isinstance(parsed, ParsedFilter) else parsed
        if case_sensitive:
            return expression
        schema = self.staged_metadata.schema()
        return translate_column_names(bind(schema, expression, False), schema, True)

    def _keys(self, names: list[str] | None, case_sensitive: bool) -> list[str]:
        """The columns of a key. A struct stands for all of its fields."""
        schema = self.staged_metadata.schema()
        if names is None:
            return _identifier_fields(schema)
        return [
            column
            for name in names
            for column in _columns_of(schema, name, case_sensitive=case_sensitive)
        ]


def _identifier_fields(schema: Schema) -> list[str]:
    ids = sorted(schema.identifier_field_ids)
    if not ids:
        raise InvalidArgumentError(
            "Join columns could not be found, please set identifier-field-ids or pass in "
            "explicitly, such as join_cols=['id']"
        )
    return [schema.find_column_name(field_id) or "" for field_id in ids]


def _columns_of(schema: Schema, name: str, *, case_sensitive: bool) -> list[str]:
    try:
        field = schema.find_field(name, case_sensitive)
    except ValueError:
        return [name]  # The merge refuses it, and names columns that exist.
    exact = schema.find_column_name(field.field_id) or name
    if not isinstance(field.field_type, StructType):
        return [exact]
    return [
        column
        for part in field.field_type.fields
        for column in _columns_of(schema, f"{exact}.{part.name}", case_sensitive=True)
    ]
