"""Commits a change to a table, or stages it in a transaction that the caller commits."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from icestream.catalogs._pyiceberg.staging import metadata_of, stage, table_of
from icestream.catalogs._pyiceberg.timeouts import limit_waits
from icestream.catalogs.redaction import error_text
from icestream.commit.change import Change
from icestream.commit.committer import Committed, Committer
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.joined_transaction import JoinedTransaction, is_joinable
from icestream.commit.new_table import Creation
from icestream.commit.outcome.unknown_outcome import refreshed
from icestream.commit.staged_change import StagedChange, StagedCheck
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.write.target import WriteTarget


class TableLanding:
    """Commits changes to a table, and retries them."""

    def __init__(self, table: Table) -> None:
        limit_waits(table.catalog)
        self._table = table
        self.name = ".".join(table.name())

    def refresh(self, *, for_append: bool = False) -> TableMetadata:
        """Load the current table from the catalog."""
        try:
            return refreshed(self._table)
        except NoSuchTableError as error:
            raise CatalogError(
                f"table {self.name} does not exist in the catalog (or no longer): create it first"
            ) from error
        except Exception as error:
            raise CatalogError(
                f"the catalog could not load {self.name}: "
                f"{error_text(error, self._table.catalog.properties)}"
            ) from error

    def target(self, metadata: TableMetadata) -> WriteTarget:
        """The table for writers, with metadata from `refresh`."""
        return _target(self._table, metadata)

    def note(self, change: Change) -> None:
        """Do nothing: a change without effect needs no commit."""

    def land(self, change: Change, in_flight: InFlightWrite | None) -> Committed:
        """Commit the change. Afterwards the files belong to the table."""
        committed = Committer(self._table, change, in_flight).commit()
        if in_flight is not None:
            if committed.already is None:
                in_flight.committed()
            else:
                in_flight.superseded()
        return committed


class TransactionLanding:
    """Stages changes in an open PyIceberg transaction, which its owner commits."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._table = table_of(transaction)
        # The table object may be refreshed before the change is staged. All commits since this
        # version must be checked for conflicts.
        self._planned = self._table.metadata
        self.name = ".".join(self._table.name())

    def refresh(self, *, for_append: bool = False) -> TableMetadata:
        """The table with the transaction's changes.

        Args:
            for_append: The rows of the table are not needed. Then earlier writes of the
                transaction may be missing, so that their manifests need not be written yet.
        """
        if isinstance(self._transaction, JoinedTransaction):
            transaction = self._transaction
            return transaction.staged_metadata if for_append else transaction.table_metadata
        return metadata_of(self._transaction)

    def target(self, metadata: TableMetadata) -> WriteTarget:
        """The table for writers, with the changes staged so far."""
        return _target(self._table, metadata)

    def note(self, change: Change) -> None:
        """Stage a check that a change without effect still has none at commit time."""
        if isinstance(self._transaction, CreateTableTransaction) or change.only_adds:
            return
        base_id = self._base_id(change)
        if isinstance(self._transaction, JoinedTransaction):
            self._transaction.join(change, None, base_id)
            return
        stage(self._transaction, StagedCheck(self._table, change, base_snapshot_id=base_id))

    def _base_id(self, change: Change) -> int | None:
        head = self._planned.snapshot_by_name(change.branch)
        return head.snapshot_id if head else None

    def land(self, change: Change, in_flight: InFlightWrite | None) -> Committed:
        """Stage the change. The marker stays until the transaction is settled."""
        base_id = self._base_id(change)
        if isinstance(self._transaction, JoinedTransaction):
            if is_joinable(change):
                return Committed(self._transaction.join(change, in_flight, base_id), 0)
            self._transaction.stage_late_changes()
        staged = StagedChange(self._table, change, in_flight, base_snapshot_id=base_id)
        stage(self._transaction, staged)
        is_foreign = isinstance(self._transaction, CreateTableTransaction) and not isinstance(
            self._transaction, Creation
        )
        if in_flight is not None and is_foreign:
            in_flight.committed()  # PyIceberg does not report how its own creations ended
        return Committed(staged.snapshot_id, 0)


Landing = TableLanding | TransactionLanding


def _target(table: Table, metadata: TableMetadata) -> WriteTarget:
    """A target with the given metadata: another thread may refresh the table object."""
    return replace(WriteTarget.of(table), metadata=metadata, schema=metadata.schema())


def landing_of(into: Table | Transaction) -> Landing:
    """The landing for a table or a transaction.

    Raises:
        InvalidArgumentError: If it is neither a table nor a transaction.
    """
    if isinstance(into, Transaction):
        return TransactionLanding(into)
    if isinstance(into, Table):
        return TableLanding(into)
    raise InvalidArgumentError(
        f"the table is a {type(into).__name__}: give a name such as 'db.t', a PyIceberg "
        "Table, or a Transaction"
    )


def check_branch(metadata: TableMetadata, branch: str, *, table: str) -> int | None:
    """The snapshot at the head of a branch; None for the main branch of an empty table.

    PyIceberg would start an empty history for a branch that does not exist.

    Raises:
        InvalidArgumentError: If the branch does not exist, or is a tag.
    """
    ref = metadata.refs.get(branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise InvalidArgumentError(
            f"{branch!r} is a tag of {table}, and tags don't move: name a branch"
        )
    if ref is None and branch != MAIN_BRANCH:
        raise InvalidArgumentError(
            f"{table} has no branch {branch!r}: create it first with table.manage_snapshots()"
            f".create_branch(snapshot_id, {branch!r}).commit()"
        )
    return ref.snapshot_id if ref is not None else None
