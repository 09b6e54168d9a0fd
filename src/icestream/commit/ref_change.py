"""Commits without files that create, move and drop branches, tried until the table is as wanted.

Each try starts from the current table and does what is still missing. So a lost answer needs no
special care: the next try sees that the change is done, or does it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)

from icestream.catalogs._pyiceberg.commits import commit_to_catalog
from icestream.catalogs.redaction import error_text
from icestream.commit.landing import TableLanding
from icestream.commit.outcome.retry import Backoff, Outcome, classify, has_ended, is_busy
from icestream.errors import CatalogError, CommitConflictError, CommitError, CommitUnknownError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefChange:
    """One commit that moves branches.

    Attributes:
        updates: The updates.
        requirements: Their requirements: a branch to move or drop must be where it was.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]

    def needs_the_same(self, other: RefChange) -> bool:
        """Whether both have the same requirements."""
        return self.requirements == other.requirements


def change_refs(
    table: Table,
    wanted: Callable[[TableMetadata], RefChange | None],
    *,
    what: str,
    snapshot_id: int | None = None,
) -> TableMetadata:
    """Commit changes until the table is as wanted.

    Args:
        table: The table. It is refreshed before each try, and has the new metadata afterwards.
        wanted: Returns the change that the current table needs, or None if it needs none. An error
            that it raises ends the loop, and nothing is changed.
        what: The change in a few words, for messages.
        snapshot_id: The snapshot of the change, for the error.

    Returns:
        The metadata of the table that needs no change.

    Raises:
        CommitConflictError: If other commits came first until the time was used up.
        CommitUnknownError: If the catalog does not answer, or hides a change it accepted.
        CommitError: If the catalog refused the change.
    """
    tries = _Tries(table, what, snapshot_id)
    while True:
        metadata = tries.look()
        change = wanted(metadata)
        if change is None:
            return metadata
        tries.send(change, metadata)


class _Tries:
    """The requests of one change."""

    def __init__(self, table: Table, what: str, snapshot_id: int | None) -> None:
        self._table = table
        self._what = what
        self._snapshot_id = snapshot_id
        self._landing = TableLanding(table)
        self._backoff = Backoff.of(table.metadata.properties)
        self._open: list[RefChange] = []  # requests that may still land
        self._taken: RefChange | None = None
        self._trouble: Exception | None = None
        self._end: CommitError | None = None  # raised if the change is not done; ends the tries

    def look(self) -> TableMetadata:
        """Load the current table."""
        while True:
            try:
                return self._landing.refresh()
            except CatalogError as error:
                if not self._may_look_again(error):
                    if self._open:
                        raise self._unsettled(self._trouble or error) from error
                    raise

    def _may_look_again(self, error: CatalogError) -> bool:
        if self._end is not None:
            return self._backoff.look_again()
        if self._open:
            return self._backoff.wait(Outcome.UNKNOWN)
        return is_busy(error, self._table.catalog) and self._backoff.wait(Outcome.CONFLICT)

    def send(self, change: RefChange, metadata: TableMetadata) -> None:
        """Send a change that the table still needs.

        Raises:
            CommitError: If the catalog refused it before, or no time is left.
        """
        # Requests with other requirements can't land any more: the branches have moved.
        self._open = [sent for sent in self._open if sent.needs_the_same(change)]
        if self._end is not None:
            if not self._open:
                raise self._end from self._trouble
            if not self._backoff.look_again():
                raise self._unsettled(self._trouble or self._end) from self._trouble
            return
        taken = self._taken is not None and self._taken.needs_the_same(change)
        if taken and not self._backoff.wait(Outcome.UNKNOWN):
            raise self._unsettled(CommitError("it said yes, and the table is as it was before"))
        unchanged = AssertTableUUID(uuid=metadata.table_uuid)
        self._open.append(change)
        try:
            commit_to_catalog(self._table, change.updates, (*change.requirements, unchanged))
            self._taken = change
        except Exception as error:
            self._note(error, change)

    def _note(self, error: Exception, change: RefChange) -> None:
        """Note a failed request. The table is loaded again in any case."""
        catalog, outcome = self._table.catalog, classify(error, self._table.catalog)
        text, name = error_text(error, catalog.properties), self._landing.name
        self._trouble = error
        if has_ended(error, catalog):
            self._open.remove(change)
        _log.debug("%s of %s, try %s: %s", self._what, name, self._backoff.tried + 1, text)
        if outcome is Outcome.REFUSED:
            self._end = CommitError(f"the catalog refused {self._what} of {name}: {text}")
        elif not self._backoff.wait(outcome):
            self._end = CommitConflictError(
                f"{self._what} of {name} lost against other commits {self._backoff.tried} times. "
                "Nothing was changed; start again, or raise commit.retry.total-timeout-ms"
            )
            if outcome is Outcome.UNKNOWN:
                self._end = CommitError(
                    f"the catalog gave no clear answer to {self._what} of {name}, and it is not "
                    f"done: {text}"
                )

    def _unsettled(self, error: Exception) -> CommitUnknownError:
        text = error_text(error, self._table.catalog.properties)
        return CommitUnknownError(
            f"the catalog did not say whether {self._what} of {self._landing.name} happened "
            f"({text}). Start again: it is done once, whether it happened or not",
            snapshot_id=self._snapshot_id or 0,
        )


def head_of(metadata: TableMetadata, branch: str) -> int | None:
    """The snapshot that a branch or a tag points to; None if there is none."""
    ref = metadata.refs.get(branch)
    return None if ref is None else ref.snapshot_id


def is_at(branch: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    """The requirement that a branch or a tag points to a snapshot, or does not exist."""
    return AssertRefSnapshotId(ref=branch, snapshot_id=snapshot_id)


def is_in_history(metadata: TableMetadata, snapshot_id: int, head_id: int) -> bool:
    """Whether a snapshot is the head, or one of its ancestors."""
    history = ancestors_of(metadata.snapshot_by_id(head_id), metadata)
    return any(snapshot.snapshot_id == snapshot_id for snapshot in history)
