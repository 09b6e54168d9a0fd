"""What a commit has sent to its catalog, and whether any of it may still land.

One rule holds for everybody who would delete files or call a commit refused. Once anything was
sent, files are deleted only after a look at the table has shown that the snapshot is absent, was
never there, and can't land any more: the branch has moved past the parent of every request, or the
catalog carries nothing out after its call has ended. Otherwise the outcome is unknown, and files
and markers stay. An answer alone proves nothing: a request that was repeated in transport is
refused because its first copy came through, and an error may follow a commit that was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from icestream.commit.retry import Backoff, has_ended
from icestream.errors import CommitError, CommitUnknownError
from icestream.redaction import error_text

_Found = TypeVar("_Found")


def refreshed(table: Table) -> TableMetadata:
    """Ask the catalog for a table as it is now; the table object has that, too.

    What the object has a moment later may be older: threads that share it set it when they have
    committed, in any order. Looks for a snapshot must not go by that.

    Raises:
        ValueError: If there is another table under the name.
    """
    fresh = table.catalog.load_table(table.name())
    if fresh.metadata.table_uuid != table.metadata.table_uuid:
        raise ValueError(
            f"it has another table of that name now, with UUID {fresh.metadata.table_uuid} instead "
            f"of {table.metadata.table_uuid}"
        )
    table.metadata, table.metadata_location = fresh.metadata, fresh.metadata_location
    table.io, table.config = fresh.io, fresh.config
    return fresh.metadata


@dataclass(slots=True)
class _Request:
    """One request.

    Attributes:
        parent_id: The head that the branch must have for it to land.
        sequence_number: The snapshot's.
        has_ended: Whether the catalog can't carry it out any more if it has not done so yet.
    """

    parent_id: int | None
    sequence_number: int
    has_ended: bool = False

    def has_not_landed(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether a table that does not have the snapshot proves that the branch has not, either.

        The snapshot may have landed, others may have committed on top, and it may have expired:
        its files are in the table then.
        """
        if self.sequence_number >= metadata.next_sequence_number() > 0:
            return True  # no snapshot has had its number so far
        head_id = _head_id(metadata, branch)
        if head_id == self.parent_id or self._is_outrun(metadata, branch):
            return True
        return head_id in _history(metadata, self.parent_id)  # it was moved back

    def can_land(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether the catalog may still carry it out.

        A branch that was moved back, or dropped, may be moved to where it must be for that.
        """
        return not self.has_ended and not self._is_outrun(metadata, branch)

    def _is_outrun(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether the branch has moved past its parent without it."""
        head_id = _head_id(metadata, branch)
        if head_id == self.parent_id:
            return False
        # With the snapshot in between, the history would not get to its parent. Nor could another
        # have its number; a catalog refuses a number that was given already.
        return self.parent_id in _history(metadata, head_id) or any(
            s.sequence_number == self.sequence_number
            for s in metadata.snapshots
            if s.sequence_number
        )


def _head_id(metadata: TableMetadata, branch: str) -> int | None:
    head = metadata.snapshot_by_name(branch)
    return head.snapshot_id if head else None


def _history(metadata: TableMetadata, snapshot_id: int | None) -> set[int | None]:
    """A snapshot and its ancestors, as far as they have not expired."""
    snapshot = metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    return {each.snapshot_id for each in ancestors_of(snapshot, metadata)}


class SentCommit:
    """The requests of one commit. Whoever would delete its files asks this first.

    Attributes:
        count: How many there were.
        is_lost: Whether the last look could not tell if the snapshot had been in the table: another
            request might commit the same rows twice.

    Args:
        catalog: Where they are sent.
        table: The table's name, for messages.
        branch: Where the snapshot goes.
        snapshot_id: The snapshot; the same in every request.
    """

    def __init__(self, catalog: Catalog, table: str, branch: str, snapshot_id: int) -> None:
        self._catalog = catalog
        self._table = table
        self._branch = branch
        self._snapshot_id = snapshot_id
        self._open: list[_Request] = []
        self._landed = False
        self.count = 0
        self.is_lost = False

    @property
    def may_be_in_table(self) -> bool:
        """Whether the snapshot is in the table, or may still get there: no file may be deleted."""
        return self._landed or bool(self._open)

    @contextmanager
    def request(self, parent_id: int | None, sequence_number: int) -> Iterator[None]:
        """Send one request in this context.

        Args:
            parent_id: The head that the branch must have for it to land.
            sequence_number: The snapshot's.
        """
        request = self.add(parent_id, sequence_number)
        try:
            yield
        except BaseException as error:
            request.has_ended = has_ended(error, self._catalog)
            raise
        self._landed = True

    def add(
        self, parent_id: int | None, sequence_number: int, error: BaseException | None = None
    ) -> _Request:
        """Note a request that is about to be sent; or one that has ended with an error."""
        ended = error is not None and has_ended(error, self._catalog)
        request = _Request(parent_id, sequence_number, ended)
        self._open.append(request)
        self.count += 1
        return request

    def found_in(self, metadata: TableMetadata) -> Snapshot | None:
        """The snapshot, if it is in the table.

        Args:
            metadata: From a look that began after the last request had ended.
        """
        snapshot = metadata.snapshot_by_id(self._snapshot_id)
        if snapshot is None:
            self.note_absence(metadata)
        else:
            self.note_landing()
        return snapshot

    def note_landing(self) -> None:
        """Note that the snapshot is, or was, in the table."""
        self._landed = True

    def note_absence(self, metadata: TableMetadata | None) -> None:
        """Note that the snapshot is not in the table.

        Args:
            metadata: From a look that began after the last request had ended; None if there is no
                table yet.
        """
        if metadata is None:
            self._open = [request for request in self._open if not request.has_ended]
            return
        lost = [r for r in self._open if not r.has_not_landed(metadata, self._branch)]
        late = [r for r in self._open if r.can_land(metadata, self._branch)]
        self._open, self.is_lost = lost + late, bool(lost)

    def settle(
        self, error: Exception, look: Callable[[], _Found | None], backoff: Backoff
    ) -> _Found | None:
        """Look for the snapshot until it is found or can't land any more.

        Args:
            error: What the last request, or what came after it, ended with.
            look: Asks the catalog; gives what it found, or notes the absence and gives None.
            backoff: How often, and how far apart.

        Returns:
            What was found; None if the snapshot is absent for good: files may be deleted.

        Raises:
            CommitUnknownError: If neither was seen.
        """
        while self.may_be_in_table:
            trouble = error
            try:
                found = look()
            except CommitError:
                raise
            except Exception as failure:
                trouble = failure
            else:
                if found is not None or not self.may_be_in_table:
                    return found
            if not backoff.look_again():
                raise self.unknown(error) from trouble
        return None

    def unknown(self, error: BaseException) -> CommitUnknownError:
        """The error that says so."""
        text = error_text(error, self._catalog.properties)
        return CommitUnknownError(
            f"it is not known whether the commit to {self._table} happened ({text}). No file was "
            f"deleted: if the table has snapshot {self._snapshot_id}, it did; if not, it may still "
            "come, and icestream.orphans finds the files later",
            snapshot_id=self._snapshot_id,
        )
