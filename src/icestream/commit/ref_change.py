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
from icestream.commit.retry import Backoff, Outcome, answers_at_once, classify
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
    landing = TableLanding(table)
    backoff = Backoff.of(table.metadata.properties)
    trouble: Exception | None = None  # of a try that may have come through
    taken: RefChange | None = None
    while True:
        try:
            metadata = landing.refresh()
        except CatalogError as error:
            busy = error.__cause__ and classify(error.__cause__, table.catalog) is Outcome.CONFLICT
            if trouble is None and not busy:
                raise
            if not backoff.wait(Outcome.UNKNOWN if trouble else Outcome.CONFLICT):
                raise _unsettled(table, what, trouble or error, snapshot_id) from error
            continue
        if answers_at_once(table.catalog):
            trouble = None  # what is not there now won't come any more
        change = wanted(metadata)
        if change is None:
            return metadata
        if change == taken and not backoff.wait(Outcome.UNKNOWN):
            silent = CommitError("it said yes, and the table is as it was before")
            raise _unsettled(table, what, silent, snapshot_id)
        unchanged = AssertTableUUID(uuid=metadata.table_uuid)
        try:
            commit_to_catalog(table, change.updates, (*change.requirements, unchanged))
            taken = change
        except Exception as error:
            outcome = classify(error, table.catalog)
            told = error_text(error, table.catalog.properties)
            _log.debug("%s of %s, try %s: %s", what, landing.name, backoff.tried + 1, told)
            if outcome is Outcome.UNKNOWN:
                trouble = error
            if outcome is Outcome.REFUSED:
                raise CommitError(
                    f"the catalog refused {what} of {landing.name}: {told}"
                ) from error
            if not backoff.wait(outcome):
                if trouble is not None:
                    raise _unsettled(table, what, trouble, snapshot_id) from error
                raise CommitConflictError(
                    f"{what} of {landing.name} lost against other commits {backoff.tried} times. "
                    "Nothing was changed; start again, or raise commit.retry.total-timeout-ms"
                ) from error


def _unsettled(
    table: Table, what: str, error: Exception, snapshot_id: int | None
) -> CommitUnknownError:
    told = error_text(error, table.catalog.properties)
    return CommitUnknownError(
        f"the catalog did not say whether {what} of {'.'.join(table.name())} happened ({told}). "
        "Start again: it is done once, whether it happened or not",
        snapshot_id=snapshot_id or 0,
    )
