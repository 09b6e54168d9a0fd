"""Branches made, moved and dropped: commits without files, tried until the table is as wanted.

Each try asks for what is still to be done of the table as it is now, so that an answer that was
lost needs no other care: whoever looks again sees it done, or does it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from icestream._pyiceberg import commit_to_catalog
from icestream.commit.landing import TableLanding
from icestream.commit.retry import Backoff, Outcome, classify, has_ended
from icestream.errors import CatalogError, CommitConflictError, CommitError, CommitUnknownError
from icestream.redaction import error_text

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RefChange:
    """One commit that moves branches.

    Attributes:
        updates: What it does.
        requirements: What must hold for it: a branch that moves, or goes, must be where it was.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]

    def needs_the_same(self, other: RefChange) -> bool:
        """Whether both can be carried out on the same tables only."""
        return self.requirements == other.requirements


def change_refs(
    table: Table,
    wanted: Callable[[TableMetadata], RefChange | None],
    *,
    what: str,
    snapshot_id: int | None = None,
) -> TableMetadata:
    """Commit what is wanted until nothing is.

    Args:
        table: Refreshed before each try; has the new metadata afterwards.
        wanted: What is to be done to the table as it is; None if it is as wanted. What it raises
            ends the loop, and nothing is changed by it.
        what: The change in a few words, for messages.
        snapshot_id: The snapshot that it is about, for the error.

    Returns:
        The table's metadata as `wanted` was content with.

    Raises:
        CommitConflictError: If it lost against other commits until the time was used up.
        CommitUnknownError: If the catalog gave no answer, and can't be asked, or said yes and does
            not show it.
        CommitError: If the catalog refused it.
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
        self._end: CommitError | None = None  # what to raise if it is not done: no more tries

    def look(self) -> TableMetadata:
        """The table as it is now."""
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
        cause = error.__cause__
        busy = cause is not None and classify(cause, self._table.catalog) is Outcome.CONFLICT
        return busy and self._backoff.wait(Outcome.CONFLICT)

    def send(self, change: RefChange, metadata: TableMetadata) -> None:
        """Ask for what a look has shown to be still wanted.

        Raises:
            CommitError: If there is no use in asking, or no time left.
        """
        # Others need branches where they are not any more.
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
        """What a failed request says: a look comes next in any case."""
        catalog, outcome = self._table.catalog, classify(error, self._table.catalog)
        told, name = error_text(error, catalog.properties), self._landing.name
        self._trouble = error
        if has_ended(error, catalog):
            self._open.remove(change)
        _log.debug("%s of %s, try %s: %s", self._what, name, self._backoff.tried + 1, told)
        if outcome is Outcome.REFUSED:
            self._end = CommitError(f"the catalog refused {self._what} of {name}: {told}")
        elif not self._backoff.wait(outcome):
            self._end = CommitConflictError(
                f"{self._what} of {name} lost against other commits {self._backoff.tried} times. "
                "Nothing was changed; start again, or raise commit.retry.total-timeout-ms"
            )
            if outcome is Outcome.UNKNOWN:
                self._end = CommitError(
                    f"the catalog gave no clear answer to {self._what} of {name}, and it is not "
                    f"done: {told}"
                )

    def _unsettled(self, error: Exception) -> CommitUnknownError:
        told = error_text(error, self._table.catalog.properties)
        return CommitUnknownError(
            f"the catalog did not say whether {self._what} of {self._landing.name} happened "
            f"({told}). Start again: it is done once, whether it happened or not",
            snapshot_id=self._snapshot_id or 0,
        )
