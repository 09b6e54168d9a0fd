"""Transactions with changes that get their snapshots only when something needs them."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import TableUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import UpdateSnapshot
from pyiceberg.typedef import EMPTY_DICT


class LateTransaction(Transaction):
    """A transaction whose subclass keeps some changes back.

    `table_metadata` shows them. They are staged before the commit, and before PyIceberg itself
    stages a snapshot, branch or tag, which may build on them.
    """

    def with_late_changes(self, metadata: TableMetadata) -> TableMetadata:
        """The table with the changes that are not staged yet.

        Args:
            metadata: The table with all staged changes.
        """
        return metadata

    def stage_late_changes(self) -> None:
        """Stage the changes that were kept back."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The table with all changes of this transaction."""
        return self.with_late_changes(super().table_metadata)

    @property
    def staged_metadata(self) -> TableMetadata:
        """The table without the changes that are not staged yet."""
        return super().table_metadata

    @property
    def base(self) -> Table:
        """The table that the transaction changes."""
        return self._table

    @property
    def staged_updates(self) -> tuple[TableUpdate, ...]:
        """The updates staged so far; another tuple after each change."""
        return self._updates

    @property
    def has_failed(self) -> bool:
        """Whether a commit was tried and failed, or has an unknown outcome."""
        return self._failed

    def refuse_reuse(self) -> None:
        """Make later commits of this transaction fail."""
        self._failed = True

    def update_snapshot(
        self, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> UpdateSnapshot:
        """Create a snapshot with PyIceberg itself, on top of the changes so far."""
        self.stage_late_changes()
        return super().update_snapshot(snapshot_properties, branch)

    def commit_transaction(self) -> Table:
        """Commit all changes to the catalog.

        Returns:
            The table, with the changes.
        """
        self.stage_late_changes()
        return super().commit_transaction()

    def _set_ref_snapshot(self, *args: Any, **options: Any) -> UpdatesAndRequirements:
        self.stage_late_changes()
        return super()._set_ref_snapshot(*args, **options)
