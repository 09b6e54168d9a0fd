"""Write, audit, publish: a load goes to a branch of its own, and then all of it to the table's.

The audit branch starts at the head of the branch that is loaded. Publishing is a fast-forward: one
commit moves that branch to the audit branch's head and drops the audit branch, provided that
neither has moved since it was looked at. Whoever is killed at any moment leaves either an audit
branch, which the next run takes up, or the published load.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from icestream.commit.append import append
from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.load_id import (
    CommittedLoad,
    find_load,
    forget_branch,
    position_of,
    remember_load,
)
from icestream.commit.ref_change import RefChange, change_refs
from icestream.errors import CommitConflictError


class OutrunError(CommitConflictError):
    """The branch has moved on from where the audit branch started: load again on its new head."""


@dataclass(frozen=True, slots=True)
class AuditBranch:
    """A branch on which a load waits for its tests.

    Attributes:
        table: The table.
        name: The audit branch's name; the same for a run that is resumed.
        onto: The branch that the load is for.
    """

    table: Table
    name: str
    onto: str = MAIN_BRANCH

    def published(self, load_id: str | None) -> CommittedLoad | None:
        """The load, if it is in the branch that it is for."""
        return find_load(TableLanding(self.table).refresh(), self.onto, load_id)

    def prepare(self, load_id: str | None) -> None:
        """Make the branch, unless it is the other one's head with this load on top, or nothing.

        A branch that was outrun, or has anything else on it, starts again at the other one's head.

        Args:
            load_id: The load's, that is to be on the branch.

        Raises:
            InvalidArgumentError: If there is no branch to load to.
        """
        self._give_it_a_snapshot()

        def wanted(metadata: TableMetadata) -> RefChange | None:
            return self._preparation(metadata, load_id)

        change_refs(self.table, wanted, what=f"making branch {self.name!r}")

    def head(self) -> int:
        """The snapshot at its head.

        Raises:
            OutrunError: If the branch is gone.
        """
        found = _head_of(TableLanding(self.table).refresh(), self.name)
        if found is None:
            raise self._lost()
        return found

    def publish(self, checked: int, load_id: str | None) -> None:
        """Move the other branch to this one's head and drop this one, in one commit.

        Args:
            checked: This branch's head, when it was looked at.
            load_id: The load's, which is remembered for the other branch.

        Raises:
            OutrunError: If one of the branches has moved meanwhile.
            CommitError: If the catalog refused, or gave no answer.
        """

        def wanted(metadata: TableMetadata) -> RefChange | None:
            return self._publication(metadata, checked, load_id)

        change_refs(
            self.table, wanted, what=f"publishing branch {self.name!r}", snapshot_id=checked
        )

    def drop(self) -> None:
        """Drop the branch if it is there; what was loaded to it counts as never loaded."""
        change_refs(self.table, self._removal, what=f"dropping branch {self.name!r}")

    def _give_it_a_snapshot(self) -> None:
        """A branch needs a snapshot to start at: of an empty table, an empty one."""
        metadata = TableLanding(self.table).refresh()
        if check_branch(metadata, self.onto, table=".".join(self.table.name())) is None:
            empty: list[pa.RecordBatch] = []
            append(self.table, empty, load_id=f"{self.name}/start")

    def _preparation(self, metadata: TableMetadata, load_id: str | None) -> RefChange | None:
        start = check_branch(metadata, self.onto, table=".".join(self.table.name()))
        assert start is not None
        here = _head_of(metadata, self.name)
        forgotten = forget_branch(metadata.properties, branch=self.name)
        if here == start and not forgotten:
            return None
        head = metadata.snapshot_by_name(self.name)
        waiting = find_load(metadata, self.name, load_id)
        # A load that was given up may have been left here, and must not be published with this one.
        if head and waiting and waiting.snapshot_id == here and head.parent_snapshot_id == start:
            return None
        made = SetSnapshotRefUpdate(
            ref_name=self.name,
            type=SnapshotRefType.BRANCH,
            snapshot_id=start,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        return RefChange((*forgotten, made), (_is_at(self.name, here),))

    def _publication(
        self, metadata: TableMetadata, checked: int, load_id: str | None
    ) -> RefChange | None:
        here, there = _head_of(metadata, self.name), _head_of(metadata, self.onto)
        if here is None:
            if there is not None and _leads_to(metadata, checked, there):
                return None  # done, and perhaps others went on from there
            raise self._lost()
        if here != checked or there is None or not _leads_to(metadata, there, here):
            raise self._outrun()
        loads: tuple[TableUpdate, ...] = forget_branch(metadata.properties, branch=self.name)
        if load_id is not None and (load := find_load(metadata, self.name, load_id)) is not None:
            loads += remember_load(
                branch=self.onto,
                load_id=load_id,
                snapshot_id=load.snapshot_id,
                counts=load.counts,
                position=position_of(metadata, self.name, load_id),
            )
        ref = metadata.refs[self.onto]
        moved = SetSnapshotRefUpdate(
            ref_name=self.onto,
            type=SnapshotRefType.BRANCH,
            snapshot_id=here,
            max_ref_age_ms=ref.max_ref_age_ms,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            min_snapshots_to_keep=ref.min_snapshots_to_keep,
        )
        return RefChange(
            (*loads, moved, RemoveSnapshotRefUpdate(ref_name=self.name)),
            (_is_at(self.onto, there), _is_at(self.name, here)),
        )

    def _removal(self, metadata: TableMetadata) -> RefChange | None:
        here = _head_of(metadata, self.name)
        if here is None:
            return None
        forgotten = forget_branch(metadata.properties, branch=self.name)
        dropped = RemoveSnapshotRefUpdate(ref_name=self.name)
        return RefChange((*forgotten, dropped), (_is_at(self.name, here),))

    def _outrun(self) -> OutrunError:
        return OutrunError(
            f"others have committed to {'.'.join(self.table.name())} while a load of it was "
            "tested. Nothing was published"
        )

    def _lost(self) -> OutrunError:
        return OutrunError(
            f"the branch {self.name!r} of {'.'.join(self.table.name())} was removed while a load "
            "waited there. Nothing was published"
        )


def _head_of(metadata: TableMetadata, branch: str) -> int | None:
    ref = metadata.refs.get(branch)
    return None if ref is None else ref.snapshot_id


def _is_at(branch: str, snapshot_id: int | None) -> AssertRefSnapshotId:
    return AssertRefSnapshotId(ref=branch, snapshot_id=snapshot_id)


def _leads_to(metadata: TableMetadata, ancestor: int, head: int) -> bool:
    """Whether the history of a snapshot has another one, or it is that."""
    history = ancestors_of(metadata.snapshot_by_id(head), metadata)
    return any(snapshot.snapshot_id == ancestor for snapshot in history)
