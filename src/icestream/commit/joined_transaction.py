"""A transaction that joins all changes of a branch to one snapshot.

A change waits as plain data until the commit. So the cost of an append does not depend on the
number of appends before it. When a change has to read the table, the changes before it get a
provisional snapshot, which only this transaction sees.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, Or
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import TableUpdate, update_table_metadata

from icestream.catalogs._pyiceberg.late_transaction import LateTransaction
from icestream.catalogs._pyiceberg.staging import (
    discard_staged,
    settle_after_error,
    settle_staged,
    stage,
)
from icestream.commit.attempt import attempt
from icestream.commit.change import Change, Counts, Key
from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import InFlightWrite, InFlightWrites
from icestream.commit.new_table import Creation
from icestream.commit.outcome.retry import has_ended
from icestream.commit.outcome.unknown_outcome import refreshed
from icestream.commit.staged_change import StagedChange, StagedCheck
from icestream.errors import CommitUnknownError


def is_joinable(change: Change) -> bool:
    """Whether a change can share a snapshot with others: a load id needs one of its own."""
    return not (change.load_id or change.write_ids or change.schema)


class JoinedChange:
    """The changes of a transaction to one branch, as one change.

    Args:
        first: The first change.
        base_id: The branch's head in the catalog when it was planned.
        snapshot_id: The id of the joint snapshot.
        io: Writes and deletes metadata files.
        table: The table's name, for messages.
    """

    def __init__(
        self, first: Change, base_id: int | None, snapshot_id: int, io: FileIO, table: str
    ) -> None:
        self.snapshot_id = snapshot_id
        self.writes = InFlightWrites(io)
        self.base_id = base_id
        self._io = io
        self._table = table
        self._first = first
        self._operations: set[Operation] = set()
        self._added: dict[str, DataFile] = {}
        self._removed: list[DataFile] = []
        self._added_deletes: dict[str, DataFile] = {}
        self._removed_deletes: list[DataFile] = []
        self._deleted_from: dict[str, DataFile] = {}
        self._seen = _SeenRows(first)
        self._properties: dict[str, str] = {}
        self._counts: list[Counts] = []
        self._provisional: list[str] = []

    def add(self, change: Change, write: InFlightWrite | None) -> None:
        """Join the next change, which was planned on top of those before it."""
        if write is not None:
            self.writes.add(write)
        self._operations.add(change.operation)
        for file in change.removed:
            self._deleted_from.pop(file.file_path, None)
            if self._added.pop(file.file_path, None) is None:
                self._removed.append(file)
            else:
                self.writes.drop([file.file_path])
        for file in change.removed_deletes:
            if self._added_deletes.pop(file.file_path, None) is None:
                self._removed_deletes.append(file)
            else:
                self.writes.drop([file.file_path])
        self._added.update((file.file_path, file) for file in change.added)
        self._added_deletes.update((file.file_path, file) for file in change.added_deletes)
        self._deleted_from.update(
            (file.file_path, file)
            for file in change.deleted_from
            if file.file_path not in self._added
        )
        self._seen.add(change)
        self._properties.update(change.properties)
        self._counts.append(change.counts)

    def change(self) -> Change:
        """The joint change."""
        seen = self._seen
        return Change(
            operation=self._operation(),
            branch=self._first.branch,
            added=tuple(self._added.values()),
            removed=tuple(self._removed),
            added_deletes=tuple(self._added_deletes.values()),
            deleted_from=tuple(self._deleted_from.values()),
            removed_deletes=tuple(self._removed_deletes),
            base_snapshot_id=self._first.base_snapshot_id,
            conflict_filter=seen.filter(),
            conflict_partitions=seen.partitions,
            conflict_schema_id=seen.schema_id,
            conflict_spec_id=seen.spec_id,
            properties=self._properties,
            counts=_total(self._counts),
        )

    def shown_in(self, metadata: TableMetadata) -> TableMetadata:
        """The table with a provisional snapshot of the change, which is never committed.

        Its metadata files are deleted when they are replaced, or when the transaction is settled.
        """
        change = self.change()
        if not change.changes_something:
            return metadata
        produced = attempt(
            change,
            metadata,
            self._io,
            base_id=None,
            head=None,
            snapshot_id=self.snapshot_id,
            table=self._table,
        )
        delete_files(self._io, self._provisional)
        self._provisional = list(produced.paths)
        return update_table_metadata(metadata, produced.updates)

    def staged(self, table: Table) -> StagedChange | StagedCheck:
        """The change in the form that a transaction commits."""
        self.writes.drop(self._provisional)
        change = self.change()
        if change.changes_something:
            base_id, own_id = self.base_id, self.snapshot_id
            return StagedChange(
                table, change, self.writes, base_snapshot_id=base_id, snapshot_id=own_id
            )
        self.writes.abandon()  # Every file that was added was removed again.
        return StagedCheck(table, change, base_snapshot_id=self.base_id)

    def discard(self) -> None:
        """Delete all files: the change will not be committed."""
        delete_files(self._io, self._provisional)
        self.writes.abandon()

    def _operation(self) -> Operation:
        if len(self._operations) == 1:
            return next(iter(self._operations))
        if self._removed or self._added_deletes or Operation.OVERWRITE in self._operations:
            return Operation.OVERWRITE
        return Operation.APPEND


class _SeenRows:
    """The rows that joined changes were computed from: data that others add there is a conflict."""

    def __init__(self, first: Change) -> None:
        self.schema_id = first.conflict_schema_id
        self.spec_id = first.conflict_spec_id
        self.partitions: frozenset[Key] | None = None
        self._filters: dict[str, BooleanExpression] = {}

    def add(self, change: Change) -> None:
        same = (change.conflict_schema_id, change.conflict_spec_id) == (
            self.schema_id,
            self.spec_id,
        )
        reads = change.conflict_filter is not None or change.conflict_partitions is not None
        mixed = (change.conflict_filter is not None and self.partitions is not None) or (
            change.conflict_partitions is not None and bool(self._filters)
        )
        if reads and (mixed or not same):
            self._everything(change)
        elif change.conflict_filter is not None:
            self._filters[str(change.conflict_filter)] = change.conflict_filter
        elif change.conflict_partitions is not None:
            self.partitions = (self.partitions or frozenset()) | change.conflict_partitions

    def filter(self) -> BooleanExpression | None:
        filters = list(self._filters.values())
        return Or(*filters) if len(filters) > 1 else (filters[0] if filters else None)

    def _everything(self, change: Change) -> None:
        """Note that all rows were read: filters of several schemas can't be joined."""
        self.schema_id, self.spec_id = change.conflict_schema_id, change.conflict_spec_id
        self.partitions = None
        self._filters = {"": AlwaysTrue()}


def _total(counts: list[Counts]) -> Counts:
    names = Counts.__dataclass_fields__
    return Counts(**{name: sum(getattr(each, name) for each in counts) for name in names})


class JoinedTransaction(LateTransaction):
    """A transaction in which each write sees the ones before, with one snapshot for each branch.

    If an error leaves the `with` block, nothing is committed and all files are deleted. If the
    transaction is dropped without a commit, `icestream.orphans` finds its files.

    Writes with a load id get a snapshot of their own. So do changes that PyIceberg itself stages,
    such as `add_files`, and the writes after them.

    Memory: the descriptions of new files.
    """

    def __init__(self, table: Any, *args: Any, **options: Any) -> None:
        super().__init__(table, *args, **options)
        self._waiting: dict[str, JoinedChange] = {}
        self._may_be_in_table = False
        self._shown: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        if exctype is not None and not self.has_failed and not self._may_be_in_table:
            self.discard()
        super().__exit__(exctype, excinst, exctb)

    def join(self, change: Change, write: InFlightWrite | None, base_id: int | None) -> int:
        """Add a change. Returns the id of its snapshot.

        Args:
            change: The change, planned on the table with all changes before it.
            write: The write whose files it adds.
            base_id: The branch's head in the catalog when it was planned.
        """
        joined = self._waiting.get(change.branch)
        if joined is None:
            table = self.base
            own_id = table.metadata.new_snapshot_id()
            joined = JoinedChange(change, base_id, own_id, table.io, ".".join(table.name()))
            self._waiting[change.branch] = joined
        joined.add(change, write)
        self._shown = None
        return joined.snapshot_id

    def with_late_changes(self, metadata: TableMetadata) -> TableMetadata:
        """The table with provisional snapshots of the changes that wait."""
        if not self._waiting:
            return metadata
        base, updates = self.base.metadata, self.staged_updates
        shown = self._shown
        if shown is None or shown[0] is not base or shown[1] is not updates:
            for joined in self._waiting.values():
                metadata = joined.shown_in(metadata)
            self._shown = shown = base, updates, metadata
        return shown[2]

    def stage_late_changes(self) -> None:
        """Stage one snapshot for each branch.

        Raises:
            CommitConflictError: If another commit conflicts. All files are deleted, and the
                transaction can't be used again.
        """
        waiting, self._waiting, self._shown = self._waiting, {}, None
        try:
            for branch in list(waiting):
                stage(self, waiting[branch].staged(self.base))
                del waiting[branch]
        except BaseException:
            self._waiting = waiting
            self.discard()
            raise

    def commit_transaction(self) -> Table:
        """Commit all changes. If the answer is lost, the table shows whether they are in it.

        Returns:
            The table, with the changes.

        Raises:
            CommitUnknownError: If it is not known whether they are in the table. All files stay.
        """
        if self.has_failed:
            return super().commit_transaction()  # raises an error
        self.stage_late_changes()
        self._may_be_in_table = True  # also after Ctrl-C
        try:
            committed = super().commit_transaction()
        except (CommitFailedException, ValidationException, CommitUnknownError):
            raise  # PyIceberg has settled the changes.
        except Exception as error:
            if not self._has_landed(error):
                raise
            committed = self.base
        self._may_be_in_table = False
        return committed

    def _has_landed(self, error: Exception) -> bool:
        """Whether the changes are in the table after an error. If not, their files are deleted."""
        return settle_after_error(self, error)

    def discard(self) -> None:
        """Delete all files of the transaction, which can't be used again."""
        self.refuse_reuse()
        waiting, self._waiting = self._waiting, {}
        for joined in waiting.values():
            joined.discard()
        discard_staged(self)


class JoinedCreation(JoinedTransaction, Creation):
    """A transaction that creates its table, with one snapshot for all writes."""

    def commit_transaction(self) -> Table:
        """Create the table. If another one of its name exists, all files are deleted.

        Returns:
            The table.
        """
        try:
            created = super().commit_transaction()
        except CommitFailedException as error:
            if not self._has_landed(error):
                raise
            created = self.base
        settle_staged(self)
        return created

    def _has_landed(self, error: Exception) -> bool:
        """Whether the table was created. If it can't be any more, all files are deleted."""
        catalog, uuid = self.base.catalog, self.base.metadata.table_uuid
        try:
            present_uuid = catalog.load_table(self.base.name()).metadata.table_uuid
        except NoSuchTableError:
            present_uuid = None
        except Exception:
            return False  # It may have been created: the files stay.
        if present_uuid == uuid:
            refreshed(self.base)
            return True
        if present_uuid is not None or has_ended(error, catalog):
            self.discard()
        return False
