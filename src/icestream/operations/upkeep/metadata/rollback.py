"""Rollback: move a branch back to an earlier snapshot of its history."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.ref_change import RefChange, change_refs, head_of, is_at, is_in_history
from icestream.commit.snapshot.producer import move_branch
from icestream.errors import CommitConflictError, InvalidArgumentError


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """A rollback, or what it would do.

    Attributes:
        branch: The branch.
        snapshot_id: The snapshot that it points to afterwards.
        previous_snapshot_id: The snapshot that it pointed to before.
        undone: The snapshots that are not in the branch any more, newest first.
        rows: Rows of the branch afterwards. None if the snapshot does not record it.
        previous_rows: Rows of the branch before.
        files: Data files of the branch afterwards.
        previous_files: Data files of the branch before.
        bytes: Size of the data files afterwards.
        previous_bytes: Size of the data files before.
    """

    branch: str
    snapshot_id: int
    previous_snapshot_id: int
    undone: tuple[int, ...]
    rows: int | None
    previous_rows: int | None
    files: int | None
    previous_files: int | None
    bytes: int | None
    previous_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


def rollback(
    table: Table,
    *,
    to: int | None = None,
    before: datetime | int | None = None,
    branch: str | None = None,
    dry_run: bool = False,
) -> RollbackReport:
    """Move a branch back to an earlier snapshot. By default, to the one before the newest.

    The snapshots after it stay in the table until they expire. Loads that they committed count as
    not loaded. The table's schema does not change.

    Args:
        table: The table.
        to: The snapshot, which must be in the branch's history.
        before: The newest snapshot that was committed before this time: a datetime (UTC unless it
            has a time zone) or milliseconds since 1970.
        branch: The branch; the main branch by default.
        dry_run: Whether to report what would change, and change nothing.

    Raises:
        InvalidArgumentError: If the history has no such snapshot.
        CommitConflictError: If another commit moved the branch meanwhile. Nothing was changed.
    """
    name, label = branch or MAIN_BRANCH, ".".join(table.name())
    if to is not None and before is not None:
        raise InvalidArgumentError("give the snapshot or the time to go back to, not both")
    metadata = TableLanding(table).refresh()
    head_id = check_branch(metadata, name, table=label)
    head = None if head_id is None else metadata.snapshot_by_id(head_id)
    if head is None:
        raise InvalidArgumentError(f"{label} is empty: there is nothing to roll back")
    history = list(ancestors_of(head, metadata))
    ids = [snapshot.snapshot_id for snapshot in history]
    if to is not None:
        target = _by_id(metadata, to, ids, name, label)
    elif before is not None:
        target = _by_time(history, before, name, label)
    else:
        target = _parent(history, name, label)
    report = _report(name, head, target, tuple(ids[: ids.index(target.snapshot_id)]))
    if not dry_run and report.undone:
        _move(table, name, head.snapshot_id, target.snapshot_id, label)
    return report


def _move(table: Table, branch: str, head_id: int, target_id: int, label: str) -> None:
    def wanted(metadata: TableMetadata) -> RefChange | None:
        here = head_of(metadata, branch)
        if here == target_id:
            return None
        if here is None or here != head_id:
            is_done = (
                here is not None
                and is_in_history(metadata, target_id, here)
                and not is_in_history(metadata, head_id, here)
            )
            if is_done:  # The answer was lost, and others have committed since then.
                return None
            raise CommitConflictError(
                f"another commit moved {branch!r} of {label} meanwhile. Nothing was changed; look "
                "at the new snapshot, and start again"
            )
        moved = move_branch(metadata, branch, target_id)
        return RefChange((moved,), (is_at(branch, head_id),))

    change_refs(table, wanted, what=f"the rollback of branch {branch!r}", snapshot_id=target_id)


def _by_id(metadata: TableMetadata, to: int, ids: list[int], branch: str, table: str) -> Snapshot:
    snapshot = metadata.snapshot_by_id(to)
    if snapshot is None:
        raise InvalidArgumentError(
            f"{table} has no snapshot {to}: it never had it, or the snapshot has expired. "
            "table.history() lists those that are left"
        )
    if to in ids:
        return snapshot
    if is_in_history(metadata, ids[0], to):
        remedy = "It is newer: create a branch at it, and publish that branch to move forward"
    else:
        remedy = "Create a branch at it to work with it"
    raise InvalidArgumentError(
        f"snapshot {to} is not in the history of {branch!r} of {table}, and a rollback only goes "
        f"back. {remedy}"
    )


def _by_time(history: list[Snapshot], before: datetime | int, branch: str, table: str) -> Snapshot:
    if isinstance(before, datetime):
        moment = before if before.tzinfo else before.replace(tzinfo=UTC)
        before_ms = int(moment.timestamp() * 1000)
    else:
        before_ms = before
    for snapshot in history:
        if snapshot.timestamp_ms < before_ms:
            return snapshot
    oldest = datetime.fromtimestamp(history[-1].timestamp_ms / 1000, UTC)
    raise InvalidArgumentError(
        f"{branch!r} of {table} has no snapshot before that time: the oldest one that is left was "
        f"committed at {oldest.isoformat(timespec='milliseconds')}"
    )


def _parent(history: list[Snapshot], branch: str, table: str) -> Snapshot:
    if len(history) > 1:
        return history[1]
    has_parent = history[0].parent_snapshot_id is not None
    reason = "the one before it has expired" if has_parent else "it is the first one"
    raise InvalidArgumentError(
        f"{branch!r} of {table} can't go back from snapshot {history[0].snapshot_id}: {reason}"
    )


def _report(
    branch: str, head: Snapshot, target: Snapshot, undone: tuple[int, ...]
) -> RollbackReport:
    return RollbackReport(
        branch=branch,
        snapshot_id=target.snapshot_id,
        previous_snapshot_id=head.snapshot_id,
        undone=undone,
        rows=total(target, "total-records"),
        previous_rows=total(head, "total-records"),
        files=total(target, "total-data-files"),
        previous_files=total(head, "total-data-files"),
        bytes=total(target, "total-files-size"),
        previous_bytes=total(head, "total-files-size"),
    )


def total(snapshot: Snapshot, name: str) -> int | None:
    """A figure of a snapshot's summary. None if the summary lacks it."""
    text = snapshot.summary.additional_properties.get(name) if snapshot.summary else None
    return int(text) if text is not None else None
