"""The requests of a commit, and whether one of them may still land.

One rule decides whether files may be deleted. Once a request was sent, files are deleted only after
a look at the table has shown that the snapshot is not and never was in it, and can't land any more.
It can't land if the branch has moved past the parent of every request, or if the catalog executes
nothing after its call has ended. Otherwise the outcome is unknown, and files and markers stay. An
answer alone proves nothing: a request that was repeated in transport is refused because its first
copy succeeded, and an error may follow a commit that was made.
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

from icestream.catalogs.redaction import error_text
from icestream.commit.outcome.retry import Backoff, has_ended
from icestream.errors import CommitError, CommitUnknownError

_Result = TypeVar("_Result")


def refreshed(table: Table) -> TableMetadata:
    """Load a table's current metadata from the catalog, and set it in the table object.

    Use the result, not the object's metadata, to look for a snapshot: threads that share the object
    set its metadata after their commits, in any order.

    Raises:
        ValueError: If another table has the name now.
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
        sequence_number: The snapshot's sequence number.
        has_ended: Whether the catalog can't execute it any more if it has not done so yet.
    """

    parent_id: int | None
    sequence_number: int
    has_ended: bool = False

    def has_not_landed(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether a table without the snapshot proves that it never landed.

        It may have landed and expired after other commits on top of it; the table then has its
        files.
        """
        if self.sequence_number >= metadata.next_sequence_number() > 0:
            return True  # no snapshot has this number yet
        head_id = _head_id(metadata, branch)
        if head_id == self.parent_id or self._is_outrun(metadata, branch):
            return True
        return head_id in _history(metadata, self.parent_id)  # it was moved back

    def can_land(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether the catalog may still execute it.

        A branch that was moved back or dropped may return to the parent of the request.
        """
        return not self.has_ended and not self._is_outrun(metadata, branch)

    def _is_outrun(self, metadata: TableMetadata, branch: str) -> bool:
        """Whether the branch has moved past its parent without it."""
        head_id = _head_id(metadata, branch)
        if head_id == self.parent_id:
            return False
        # If the snapshot had landed, the parent would not follow directly in the history, and no
        # other snapshot could have its number: a catalog refuses a number that is in use.
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


class CommitRequests:
    """The requests of one commit. Ask it before deleting the commit's files.

    Attributes:
        count: Number of requests.
        is_lost: Whether the last look could not show if the snapshot was ever in the table: another
            request might commit the same rows twice.

    Args:
        catalog: The catalog.
        table: The table's name, for messages.
        branch: The branch of the snapshot.
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
    def sending(self, parent_id: int | None, sequence_number: int) -> Iterator[None]:
        """Send one request in this context.

        Args:
            parent_id: The head that the branch must have for it to land.
            sequence_number: The snapshot's sequence number.
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
        """Note a request that is about to be sent, or one that failed with an error."""
        ended = error is not None and has_ended(error, self._catalog)
        request = _Request(parent_id, sequence_number, ended)
        self._open.append(request)
        self.count += 1
        return request

    def found_in(self, metadata: TableMetadata) -> Snapshot | None:
        """The snapshot, if it is in the table.

        Args:
            metadata: The table, loaded after the last request had ended.
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
            metadata: The table, loaded after the last request had ended; None if it does not exist.
        """
        if metadata is None:
            self._open = [request for request in self._open if not request.has_ended]
            return
        lost = [r for r in self._open if not r.has_not_landed(metadata, self._branch)]
        late = [r for r in self._open if r.can_land(metadata, self._branch)]
        self._open, self.is_lost = lost + late, bool(lost)

    def settle(
        self, error: Exception, look: Callable[[], _Result | None], backoff: Backoff
    ) -> _Result | None:
        """Look for the snapshot until it is in the table or can't land any more.

        Args:
            error: The error of the last request, or of a step after it.
            look: Loads the table; returns a result, or notes the absence and returns None.
            backoff: The waits between looks.

        Returns:
            The result of `look`; None if the snapshot can't land, so that files may be deleted.

        Raises:
            CommitUnknownError: If neither is certain.
        """
        while self.may_be_in_table:
            trouble = error
            try:
                result = look()
            except CommitError:
                raise
            except Exception as failure:
                trouble = failure
            else:
                if result is not None or not self.may_be_in_table:
                    return result
            if not backoff.look_again():
                raise self.unknown(error) from trouble
        return None

    def unknown(self, error: BaseException) -> CommitUnknownError:
        """The error for a commit whose outcome is unknown."""
        text = error_text(error, self._catalog.properties)
        return CommitUnknownError(
            f"it is not known whether the commit to {self._table} happened ({text}). No file was "
            f"deleted: if the table has snapshot {self._snapshot_id}, it happened; if not, it may "
            "still happen, and icestream.orphans finds the files later",
            snapshot_id=self._snapshot_id,
        )
