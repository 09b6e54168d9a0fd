"""Branches and tags: create, delete, rename and publish them.

Each change is one commit that asserts the position of every branch it touches. If another commit
moves such a branch in between, the change is refused and nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from icestream.commit.landing import TableLanding
from icestream.commit.outcome.load_id import copy_loads, forget_branch
from icestream.commit.ref_change import RefChange, change_refs, head_of, is_at, is_in_history
from icestream.commit.snapshot.producer import move_branch
from icestream.errors import CommitConflictError, InvalidArgumentError

Kind = Literal["branch", "tag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a branch or a tag and its snapshots are kept. None means the table's default.

    Attributes:
        max_ref_age_ms: Age at which expiry removes the branch or tag itself.
        max_snapshot_age_ms: Age at which expiry removes snapshots of the branch.
        min_snapshots_to_keep: Minimum number of snapshots of the branch that expiry keeps.
    """

    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


DEFAULT_RETENTION = Retention()


def list_refs(table: Table, kind: Kind) -> Mapping[str, SnapshotRef]:
    """The branches or the tags of a table, by name."""
    refs = TableLanding(table).refresh().refs
    return {name: ref for name, ref in sorted(refs.items()) if kind_of(ref) == kind}


def create_ref(
    table: Table,
    name: str,
    kind: Kind,
    *,
    snapshot_id: int | None = None,
    at: str | None = None,
    retention: Retention = DEFAULT_RETENTION,
) -> int:
    """Create a branch or a tag.

    Args:
        table: The table.
        name: The name of the new branch or tag.
        kind: What to create.
        snapshot_id: The snapshot that it points to.
        at: A branch or a tag, if `snapshot_id` is not given: the new one points to its snapshot.
            The main branch by default.
        retention: How long it is kept.

    Returns:
        The id of its snapshot.

    Raises:
        InvalidArgumentError: If the name is taken, or there is no such snapshot.
    """
    if not name.strip():
        raise InvalidArgumentError(f"the name of the new {kind} is {name!r}: give it a name")
    label = ".".join(table.name())
    metadata = TableLanding(table).refresh()
    if name in metadata.refs:
        raise InvalidArgumentError(
            f"{label} already has a {kind_of(metadata.refs[name])} {name!r}: delete it first, or "
            "choose another name"
        )
    if name == MAIN_BRANCH:
        raise InvalidArgumentError(f"the first write to {label} creates its branch {MAIN_BRANCH!r}")
    target = _snapshot(metadata, snapshot_id, at or MAIN_BRANCH, label)
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType(kind),
        snapshot_id=target,
        max_ref_age_ms=retention.max_ref_age_ms,
        max_snapshot_age_ms=retention.max_snapshot_age_ms,
        min_snapshots_to_keep=retention.min_snapshots_to_keep,
    )

    def wanted(metadata: TableMetadata) -> RefChange | None:
        ref = metadata.refs.get(name)
        if ref is not None and (ref.snapshot_id, kind_of(ref)) == (target, kind):
            return None
        if ref is not None:
            raise _moved(label, name, "created")
        if metadata.snapshot_by_id(target) is None:
            raise CommitConflictError(f"snapshot {target} of {label} has expired meanwhile")
        forgotten = forget_branch(metadata.properties, branch=name)
        return RefChange((*forgotten, update), (is_at(name, None),))

    change_refs(table, wanted, what=f"creating {kind} {name!r}", snapshot_id=target)
    return target


def delete_ref(table: Table, name: str, kind: Kind) -> int:
    """Delete a branch or a tag. Its snapshots stay until they expire.

    Returns:
        The id of the snapshot that it pointed to.

    Raises:
        InvalidArgumentError: If it does not exist, or is the main branch.
        CommitConflictError: If another commit moved it meanwhile.
    """
    label = ".".join(table.name())
    before = _ref(TableLanding(table).refresh(), name, kind, label)
    _refuse_main(name, "deleted")

    def wanted(metadata: TableMetadata) -> RefChange | None:
        ref = metadata.refs.get(name)
        if ref is None:
            return None
        if ref.snapshot_id != before.snapshot_id:
            raise _moved(label, name)
        forgotten = forget_branch(metadata.properties, branch=name) if kind == "branch" else ()
        gone = RemoveSnapshotRefUpdate(ref_name=name)
        return RefChange((*forgotten, gone), (is_at(name, ref.snapshot_id),))

    change_refs(table, wanted, what=f"deleting {kind} {name!r}", snapshot_id=before.snapshot_id)
    return before.snapshot_id


def rename_branch(table: Table, name: str, new_name: str) -> int:
    """Rename a branch, in one commit. Its retention and its load ids stay.

    Returns:
        The id of the snapshot that it points to.

    Raises:
        InvalidArgumentError: If it does not exist or is the main branch, or the new name is taken.
        CommitConflictError: If another commit moved it meanwhile.
    """
    label = ".".join(table.name())
    before = TableLanding(table).refresh()
    head = _ref(before, name, "branch", label).snapshot_id
    _refuse_main(name, "renamed")
    if not new_name.strip() or new_name == MAIN_BRANCH or new_name in before.refs:
        raise InvalidArgumentError(
            f"{name!r} can't get the name {new_name!r}, which is empty or taken: choose another one"
        )

    def wanted(metadata: TableMetadata) -> RefChange | None:
        old, new = metadata.refs.get(name), metadata.refs.get(new_name)
        if old is None and new is not None and new.snapshot_id == head:
            return None
        if old is None or new is not None or old.snapshot_id != head:
            raise _moved(label, name)
        loads = (
            *forget_branch(metadata.properties, branch=new_name),
            *copy_loads(metadata.properties, branch=name, onto=new_name),
            *forget_branch(metadata.properties, branch=name),
        )
        renamed = move_branch(metadata, name, head).model_copy(update={"ref_name": new_name})
        gone = RemoveSnapshotRefUpdate(ref_name=name)
        return RefChange((*loads, renamed, gone), (is_at(name, head), is_at(new_name, None)))

    change_refs(table, wanted, what=f"renaming branch {name!r}", snapshot_id=head)
    return head


@dataclass(frozen=True, slots=True)
class Publication:
    """A branch that was published.

    Attributes:
        snapshot_id: The head of both branches.
        previous_snapshot_id: The head of the target branch before. None if it was empty.
    """

    snapshot_id: int
    previous_snapshot_id: int | None


def publish_branch(
    table: Table, name: str, *, onto: str = MAIN_BRANCH, delete: bool = False
) -> Publication:
    """Move a branch forward to the head of another one, which contains all of its snapshots.

    Args:
        table: The table.
        name: The branch to publish.
        onto: The branch to move.
        delete: Whether to delete the published branch in the same commit.

    Raises:
        InvalidArgumentError: If one of them does not exist or is a tag.
        CommitConflictError: If `onto` has snapshots that `name` lacks, or one of them moved.
    """
    label = ".".join(table.name())
    metadata = TableLanding(table).refresh()
    head = _ref(metadata, name, "branch", label).snapshot_id
    if name == onto:
        raise InvalidArgumentError(f"{name!r} can't be published onto itself: name two branches")
    if delete:
        _refuse_main(name, "deleted")
    before = _ref(metadata, onto, "branch", label).snapshot_id if metadata.refs.get(onto) else None
    if before is None and onto != MAIN_BRANCH:
        _ref(metadata, onto, "branch", label)
    if before is not None and not is_in_history(metadata, before, head):
        raise CommitConflictError(
            f"{onto!r} of {label} has snapshots that {name!r} lacks, so moving it to {name!r} "
            f"would lose them. Nothing was changed; create a branch at {onto!r}, and repeat the "
            f"changes of {name!r} on it"
        )

    def wanted(metadata: TableMetadata) -> RefChange | None:
        here, there = head_of(metadata, name), head_of(metadata, onto)
        done = there is not None and is_in_history(metadata, head, there)
        if done and (here is None or not delete):
            return None
        if here != head or not (done or there == before):
            raise _moved(label, name if here != head else onto)
        loads: tuple[TableUpdate, ...] = copy_loads(metadata.properties, branch=name, onto=onto)
        asserted = [is_at(onto, there), is_at(name, head)]
        moves: list[TableUpdate] = [] if done else [move_branch(metadata, onto, head)]
        if delete:
            loads += forget_branch(metadata.properties, branch=name)
            moves.append(RemoveSnapshotRefUpdate(ref_name=name))
        return RefChange((*loads, *moves), tuple(asserted))

    change_refs(table, wanted, what=f"publishing branch {name!r}", snapshot_id=head)
    return Publication(head, before)


def kind_of(ref: SnapshotRef) -> Kind:
    """Whether a reference is a branch or a tag."""
    return "branch" if ref.snapshot_ref_type == SnapshotRefType.BRANCH else "tag"


def _ref(metadata: TableMetadata, name: str, kind: Kind, table: str) -> SnapshotRef:
    ref = metadata.refs.get(name)
    if ref is not None and kind_of(ref) == kind:
        return ref
    if ref is not None:
        raise InvalidArgumentError(f"{name!r} of {table} is a {kind_of(ref)}: name a {kind}")
    names = sorted(each for each, ref in metadata.refs.items() if kind_of(ref) == kind)
    known = f"it has {', '.join(names)}" if names else f"it has no {kind} yet"
    raise InvalidArgumentError(f"{table} has no {kind} {name!r}: {known}")


def _snapshot(metadata: TableMetadata, snapshot_id: int | None, at: str, table: str) -> int:
    if snapshot_id is None:
        ref = metadata.refs.get(at)
        if ref is None and at == MAIN_BRANCH:
            raise InvalidArgumentError(
                f"{table} is empty, and a branch or tag needs a snapshot: write rows first"
            )
        return (
            ref.snapshot_id if ref is not None else _ref(metadata, at, "branch", table).snapshot_id
        )
    if metadata.snapshot_by_id(snapshot_id) is None:
        raise InvalidArgumentError(
            f"{table} has no snapshot {snapshot_id}: it never had it, or the snapshot has expired. "
            "table.history() lists those that are left"
        )
    return snapshot_id


def _refuse_main(name: str, what: str) -> None:
    if name == MAIN_BRANCH:
        raise InvalidArgumentError(f"the branch {MAIN_BRANCH!r} can't be {what}")


def _moved(table: str, name: str, verb: str = "changed") -> CommitConflictError:
    return CommitConflictError(
        f"another commit {verb} {name!r} of {table} meanwhile. Nothing was changed; look at the "
        "table, and start again"
    )
