"""The audit branch: a load writes to it, and publishing moves the table's branch to it.

The audit branch starts at the head of the target branch. Publishing is a fast-forward: one commit
moves the target branch to the head of the audit branch and drops the audit branch. It fails if one
of them has moved since the tests. A killed process leaves either the published load, or an audit
branch with which the next run continues.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.outcome.load_id import (
    CommittedWrite,
    find_load,
    forget_branch,
    position_of,
    remember_load,
)
from icestream.commit.ref_change import RefChange, change_refs, head_of, is_at, is_in_history
from icestream.commit.snapshot.producer import move_branch
from icestream.errors import CommitConflictError
from icestream.operations.append import append


class OutrunError(CommitConflictError):
    """The target branch has moved since the audit branch started: load again on its new head."""


@dataclass(frozen=True, slots=True)
class AuditBranch:
    """A branch on which a load waits for its tests.

    Attributes:
        table: The table.
        name: Name of the audit branch. A resumed run uses the same name.
        onto: The target branch.
    """

    table: Table
    name: str
    onto: str = MAIN_BRANCH

    def published(self, load_id: str | None) -> CommittedWrite | None:
        """The committed load, if it is on the target branch."""
        return find_load(TableLanding(self.table).refresh(), self.onto, load_id)

    def prepare(self, load_id: str | None) -> None:
        """Create the audit branch at the head of the target branch.

        An existing audit branch stays if it has only this load on top of that head. Otherwise it
        is reset to that head.

        Args:
            load_id: The id of the load.

        Raises:
            InvalidArgumentError: If the target branch does not exist.
        """
        self._give_it_a_snapshot()
        change_refs(
            self.table,
            lambda metadata: self._preparation(metadata, load_id),
            what=f"creating branch {self.name!r}",
        )

    def head(self) -> int:
        """The snapshot at the head of the audit branch.

        Raises:
            OutrunError: If the audit branch does not exist.
        """
        head = head_of(TableLanding(self.table).refresh(), self.name)
        if head is None:
            raise self._lost()
        return head

    def publish(self, checked: int, load_id: str | None) -> None:
        """Move the target branch to the audit branch's head and drop the audit branch.

        Args:
            checked: The head of the audit branch when the tests ran.
            load_id: The id of the load, which is recorded for the target branch.

        Raises:
            OutrunError: If one of the branches has moved since then.
            CommitError: If the catalog refused the commit, or gave no answer.
        """
        change_refs(
            self.table,
            lambda metadata: self._publication(metadata, checked, load_id),
            what=f"publishing branch {self.name!r}",
            snapshot_id=checked,
        )

    def drop(self) -> None:
        """Drop the audit branch if it exists. Its load then counts as not loaded."""
        change_refs(self.table, self._removal, what=f"dropping branch {self.name!r}")

    def _give_it_a_snapshot(self) -> None:
        """Commit an empty snapshot to an empty table: a branch needs a snapshot to start at."""
        metadata = TableLanding(self.table).refresh()
        if check_branch(metadata, self.onto, table=".".join(self.table.name())) is None:
            empty: list[pa.RecordBatch] = []
            append(self.table, empty, load_id=f"{self.name}/start")

    def _preparation(self, metadata: TableMetadata, load_id: str | None) -> RefChange | None:
        start = check_branch(metadata, self.onto, table=".".join(self.table.name()))
        assert start is not None
        here = head_of(metadata, self.name)
        forgotten = forget_branch(metadata.properties, branch=self.name)
        if here == start and not forgotten:
            return None
        head = metadata.snapshot_by_name(self.name)
        waiting = find_load(metadata, self.name, load_id)
        # An abandoned load may still be on the branch. It must not be published with this one.
        if head and waiting and waiting.snapshot_id == here and head.parent_snapshot_id == start:
            return None
        start_ref = SetSnapshotRefUpdate(
            ref_name=self.name,
            type=SnapshotRefType.BRANCH,
            snapshot_id=start,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        )
        return RefChange((*forgotten, start_ref), (is_at(self.name, here),))

    def _publication(
        self, metadata: TableMetadata, checked: int, load_id: str | None
    ) -> RefChange | None:
        here, there = head_of(metadata, self.name), head_of(metadata, self.onto)
        if here is None:
            if there is not None and is_in_history(metadata, checked, there):
                return None  # published; others may have committed since then
            raise self._lost()
        if here != checked or there is None or not is_in_history(metadata, there, here):
            raise OutrunError(
                f"another writer committed to {'.'.join(self.table.name())} while a load was "
                "tested. Nothing was published"
            )
        loads: tuple[TableUpdate, ...] = forget_branch(metadata.properties, branch=self.name)
        if load_id is not None and (load := find_load(metadata, self.name, load_id)) is not None:
            loads += remember_load(
                branch=self.onto,
                load_id=load_id,
                snapshot_id=load.snapshot_id,
                counts=load.counts,
                position=position_of(metadata, self.name, load_id),
            )
        moved = move_branch(metadata, self.onto, here)
        dropped = RemoveSnapshotRefUpdate(ref_name=self.name)
        return RefChange(
            (*loads, moved, dropped), (is_at(self.onto, there), is_at(self.name, here))
        )

    def _removal(self, metadata: TableMetadata) -> RefChange | None:
        here = head_of(metadata, self.name)
        if here is None:
            return None
        forgotten = forget_branch(metadata.properties, branch=self.name)
        dropped = RemoveSnapshotRefUpdate(ref_name=self.name)
        return RefChange((*forgotten, dropped), (is_at(self.name, here),))

    def _lost(self) -> OutrunError:
        return OutrunError(
            f"the branch {self.name!r} of {'.'.join(self.table.name())} was removed while a load "
            "was tested on it. Nothing was published"
        )
