"""Staging: changes by icestream inside a transaction that the caller commits."""

from __future__ import annotations

import sys
from operator import is_
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

from pyiceberg.exceptions import ValidationException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    UpdatesAndRequirements,
    update_table_metadata,
)

from icestream.errors import CommitConflictError, CommitError

# Changes that do not refer to others by "the last one".
_INDEPENDENT = (AddSnapshotUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate)


class _Known(NamedTuple):
    """The table that results from some changes."""

    base: TableMetadata
    updates: tuple[TableUpdate, ...]
    metadata: TableMetadata


_known: WeakKeyDictionary[Transaction, _Known] = WeakKeyDictionary()


class StagedHooks(Protocol):
    """The methods of a staged change that its transaction calls."""

    @property
    def makes_snapshot(self) -> bool:
        """Whether it adds a snapshot, or only checks the changes of others."""
        ...

    @property
    def snapshot_id(self) -> int: ...

    @property
    def base_snapshot_id(self) -> int | None: ...

    @property
    def branch(self) -> str: ...

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements: ...

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements: ...

    def landed(self) -> None: ...

    def failed(self, error: BaseException | None) -> None:
        """The transaction reports a failed commit. Check whether it really failed."""
        ...

    def has_landed(self, error: BaseException | None) -> bool:
        """Whether the commit happened although the catalog raised an error."""
        ...

    def discard(self) -> None:
        """The commit of the transaction has certainly failed."""
        ...


class StagedConflictError(CommitConflictError, ValidationException):
    """A staged change conflicts with another one. The transaction deletes all its files."""


class StagedCommitError(CommitError, ValidationException):
    """A staged change could not be prepared. The transaction deletes all its files."""


class _StagedProducer:
    """The part of a PyIceberg snapshot producer that `Transaction` uses."""

    def __init__(self, hooks: StagedHooks, transaction: Transaction) -> None:
        self._hooks = hooks
        self._transaction = transaction
        self._starting_snapshot_id = hooks.base_snapshot_id
        self._target_branch = hooks.branch
        self._commit_window: object = None

    def _refresh_for_retry(self) -> None:
        """Nothing to do: the hooks read the metadata again each time."""

    @property
    def makes_snapshot(self) -> bool:
        return self._hooks.makes_snapshot

    @property
    def _snapshot_id(self) -> int:
        """The snapshot by which PyIceberg recognises that the transaction was committed."""
        for producer in () if self.makes_snapshot else self._transaction._snapshot_producers:
            if not isinstance(producer, _StagedProducer) or producer.makes_snapshot:
                return producer._snapshot_id
        return self._hooks.snapshot_id

    def _validate_concurrency(self) -> None:
        """Validate a change without a snapshot. Others are validated when they are produced."""
        if not self.makes_snapshot:
            self._produced()

    def _produced(self) -> UpdatesAndRequirements:
        try:
            return self._hooks.produce(metadata_of(self._transaction))
        except CommitConflictError as error:
            raise StagedConflictError(str(error)) from error
        except CommitError as error:
            raise StagedCommitError(str(error)) from error

    def _commit(self) -> UpdatesAndRequirements:
        updates, requirements = self._produced()
        # A transaction keeps one requirement of each type and would drop that of a second branch.
        staged = self._transaction._requirements
        asserted = {r.ref for r in staged if isinstance(r, AssertRefSnapshotId)}
        self._transaction._requirements += tuple(
            r
            for r in requirements
            if asserted and isinstance(r, AssertRefSnapshotId) and r.ref not in asserted
        )
        return updates, requirements

    def _cleanup_uncommitted(self) -> None:
        self._hooks.landed()

    def _clean_all_uncommitted(self) -> None:
        self._hooks.failed(sys.exception())

    def has_landed(self, error: BaseException) -> bool:
        return self._hooks.has_landed(error)

    def discard(self) -> None:
        self._hooks.discard()


def table_of(transaction: Transaction) -> Table:
    """The table of a transaction."""
    return transaction._table


def discard_staged(transaction: Transaction) -> None:
    """Notify the changes staged in a transaction that creates its table that its commit failed.

    PyIceberg notifies the changes of other transactions itself.
    """
    for producer in transaction._snapshot_producers:
        if isinstance(producer, _StagedProducer):
            producer.discard()


def settle_staged(transaction: Transaction) -> None:
    """Notify the changes staged in a transaction that creates its table that it was committed."""
    for producer in transaction._snapshot_producers:
        producer._cleanup_uncommitted()


def settle_after_error(transaction: Transaction, error: BaseException) -> bool:
    """Find out whether a commit happened although the catalog raised an error.

    PyIceberg itself settles only transactions that the catalog refused because of others.

    Returns:
        Whether it happened. If not, the files of the staged changes are deleted.

    Raises:
        CommitUnknownError: If that is not known. The files stay.
    """
    producers: list[Any] = transaction._snapshot_producers
    staged = [p for p in producers if isinstance(p, _StagedProducer) and p.makes_snapshot]
    landed = [producer.has_landed(error) for producer in staged]  # each cleans up its files
    if not landed or not all(landed):
        return False
    for producer in producers:
        if not isinstance(producer, _StagedProducer):
            producer._cleanup_uncommitted()
    transaction._snapshot_producers, transaction._failed = [], False
    transaction._updates, transaction._requirements = (), ()
    return True


def stage(transaction: Transaction, hooks: StagedHooks) -> None:
    """Stage a change in a transaction, which commits and retries it with its other changes.

    If this raises, the transaction is unchanged.
    """
    before = transaction._updates, transaction._requirements
    producer = _StagedProducer(hooks, transaction)
    try:
        updates, requirements = hooks.lasting(metadata_of(transaction))
        if any(isinstance(r, AssertCurrentSchemaId) for r in transaction._requirements):
            requirements = ()  # An earlier change in the transaction asserts the schema.
        _add(transaction, updates, requirements)
        _add(transaction, *producer._commit())
    except BaseException:
        transaction._updates, transaction._requirements = before
        raise
    transaction._register_snapshot_producer(producer)  # type: ignore[arg-type]
    transaction._apply(())  # commits, if the transaction does so after each change


def metadata_of(transaction: Transaction) -> TableMetadata:
    """The table with all changes of a transaction.

    PyIceberg applies all changes anew each time, and the time for that grows with their number.
    """
    base, updates = transaction._table.metadata, transaction._updates
    known = _known.get(transaction)
    metadata, new = base, updates
    if known is not None and known.base is base and _starts_with(updates, known.updates):
        rest = updates[len(known.updates) :]
        if all(isinstance(update, _INDEPENDENT) for update in rest):
            metadata, new = known.metadata, rest
    if new or metadata is base:
        metadata = update_table_metadata(metadata, new)
    _known[transaction] = _Known(base, updates, metadata)
    return metadata


def _add(
    transaction: Transaction,
    updates: tuple[TableUpdate, ...],
    requirements: tuple[TableRequirement, ...],
) -> None:
    """Add changes to a transaction, with one requirement of each type, as PyIceberg does."""
    for requirement in requirements:
        requirement.validate(metadata_of(transaction))
    transaction._updates += updates
    types = {type(requirement) for requirement in transaction._requirements}
    transaction._requirements += tuple(r for r in requirements if type(r) not in types)


def _starts_with(updates: tuple[TableUpdate, ...], first: tuple[TableUpdate, ...]) -> bool:
    return len(updates) >= len(first) and all(map(is_, updates, first))
