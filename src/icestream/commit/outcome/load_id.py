"""Load ids: a load that was committed once is not committed again.

A committed load is stored twice: in its snapshot's summary, and in a table property of its own
(`icestream.load.<branch>:<id>`), which stays when the snapshot expires. Properties are kept for 30
days and for the newest 1,000 loads. The table properties `icestream.load.retention-days` and
`icestream.load.retention-count` change that.

A load counts as committed on a branch while its snapshot is in the branch's history. A snapshot
that exists but is not in the history was rolled back, so its load does not count. A snapshot that
does not exist any more has expired. The property has its sequence number (in tables of version 1,
its time). If the history goes further back than that and lacks the snapshot, it was rolled back
before it expired. If the history does not go back that far, the load counts as committed.

A batch of a stream is a load, too. For each stream, the properties of its newest 10 batches are
kept: a stream never repeats older ones, and must not push out the ids of other loads.

An append with a load id made from its inputs (`inputs:<definition>:<inputs>`) has no age limit: a
pipeline that runs every night may see the same file for years.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from icestream.commit.change import Change, Counts
from icestream.commit.outcome.retry import whole_number
from icestream.errors import InvalidArgumentError
from icestream.read.plan.manifests import metadata_files

LOAD_ID_KEY = "icestream.load-id"
WRITE_IDS_KEY = "icestream.write-ids"
REPLACED_KEY = "icestream.replaced"  # "true" if the snapshot has no row of earlier snapshots
_PREFIX = "icestream.load."
_RETENTION_DAYS = "icestream.load.retention-days"
_RETENTION_COUNT = "icestream.load.retention-count"
_DAY_MS = 24 * 3600 * 1000
_MOST_CHARACTERS = 500
_BATCHES_KEPT = 10
_INPUTS = "inputs:"
_STREAM_BATCH = re.compile(r"stream:(.+):(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    """A load that is in the table already.

    Attributes:
        snapshot_id: Its snapshot.
        counts: Its counts.
    """

    snapshot_id: int
    counts: Counts


def check_load_id(load_id: str | None) -> None:
    """Refuse an id that can't be stored."""
    if load_id is None:
        return
    if not isinstance(load_id, str) or not load_id.strip() or len(load_id) > _MOST_CHARACTERS:
        raise InvalidArgumentError(
            f"load_id is {load_id!r}: give a non-empty string of at most {_MOST_CHARACTERS} "
            "characters that is unique to this load"
        )


def batch_load_id(stream_id: str, batch_id: int) -> str:
    """The load id of a batch of a stream."""
    return f"stream:{stream_id}:{batch_id}"


def inputs_load_id(definition: str, inputs: str) -> str:
    """The load id of an append, made from its inputs. It has no age limit."""
    return f"{_INPUTS}{definition}:{inputs}"


def is_inputs_load_id(load_id: str | None) -> bool:
    """Whether a load id is made from inputs."""
    return load_id is not None and load_id.startswith(_INPUTS)


def batch_of_load(load_id: str) -> tuple[str, int] | None:
    """The stream and the number of a batch; None if the load is not a batch."""
    match = _STREAM_BATCH.fullmatch(load_id)
    return (match[1], int(match[2])) if match else None


def find_load(metadata: TableMetadata, branch: str, load_id: str | None) -> CommittedWrite | None:
    """The load with that id, if it is in the branch.

    A load id made from inputs does not count once all rows were replaced or deleted.
    """
    if load_id is None:
        return None
    history = History.of(metadata, branch)
    load = _by_property(metadata, branch, load_id, history)
    if load is None:
        snapshots = history.snapshots.values()
        same = (each for each in snapshots if _summary(each).get(LOAD_ID_KEY) == load_id)
        load = next(map(load_of, same), None)
    if load is None or not is_inputs_load_id(load_id):
        return load
    return None if _is_replaced(load.snapshot_id, history) else load


def find_committed(change: Change, metadata: TableMetadata, io: FileIO) -> CommittedWrite | None:
    """The earlier commit of the same load or the same files, if the branch has it.

    Raises:
        InvalidArgumentError: If the branch has some of the files, but not all.
    """
    load = find_load(metadata, change.branch, change.load_id)
    return load or find_files(metadata, change.branch, change.written_paths, change.write_ids, io)


def find_files(
    metadata: TableMetadata,
    branch: str,
    paths: Collection[str],
    write_ids: Collection[str],
    io: FileIO,
) -> CommittedWrite | None:
    """The newest commit that added some files of `write_files`, if all were added.

    Only commits of the same writes are read, by `icestream.write-ids` in their summaries.

    Raises:
        InvalidArgumentError: If some of the files were added, but not all.
    """
    if not paths:
        return None
    newest: Snapshot | None = None
    missing = set(paths)
    for snapshot in ancestors_of(metadata.snapshot_by_name(branch), metadata):
        if not set(_summary(snapshot).get(WRITE_IDS_KEY, "").split(",")).isdisjoint(write_ids):
            added = _added_paths(snapshot, io, metadata.location)
            newest = newest or (snapshot if not missing.isdisjoint(added) else None)
            missing -= added
    if newest is not None and missing:
        raise InvalidArgumentError(
            f"{len(paths) - len(missing)} of the {len(paths)} files have been committed before, "
            f"the last in snapshot {newest.snapshot_id}: commit only the others, such as "
            f"{min(missing)}"
        )
    return load_of(newest) if newest is not None else None


def _added_paths(snapshot: Snapshot, io: FileIO, table: str) -> set[str]:
    files = metadata_files(io, table=table)
    return {
        entry.data_file.file_path
        for manifest in files.manifests_of(snapshot)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in files.entries(manifest)
        if entry.snapshot_id == snapshot.snapshot_id
    }


def _is_replaced(snapshot_id: int, history: History) -> bool:
    """Whether a newer snapshot replaced all rows; the history is ordered newest first."""
    for snapshot in history.snapshots.values():
        if snapshot.snapshot_id == snapshot_id:
            return False
        summary = _summary(snapshot)
        if summary.get(REPLACED_KEY) == "true" or summary.get("total-records") == "0":
            return True
    return False


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def load_of(snapshot: Snapshot) -> CommittedWrite:
    """The load of a snapshot, from its summary."""
    names = {
        "rows_inserted": "added-records",
        "rows_deleted": "deleted-records",
        "files_added": "added-data-files",
        "files_removed": "deleted-data-files",
        "bytes_written": "added-files-size",
    }
    summary = _summary(snapshot)
    counts = Counts(**{name: int(summary.get(key, 0)) for name, key in names.items()})
    return CommittedWrite(snapshot.snapshot_id, counts)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a snapshot is in a table's history.

    Attributes:
        sequence_number: The snapshot's sequence number; None in tables of version 1.
        timestamp_ms: When it was committed.
    """

    sequence_number: int | None
    timestamp_ms: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Position:
        """The position of a snapshot."""
        return cls(snapshot.sequence_number or None, snapshot.timestamp_ms)

    @classmethod
    def next(cls, metadata: TableMetadata) -> Position:
        """The position of the next snapshot; a lower bound if others commit first."""
        return cls(metadata.next_sequence_number() or None, _now_ms())

    def is_above(self, snapshot: Snapshot) -> bool:
        """Whether another snapshot is older, so that this one can't be its ancestor."""
        if self.sequence_number is not None and snapshot.sequence_number:
            return snapshot.sequence_number <= self.sequence_number
        return snapshot.timestamp_ms < self.timestamp_ms


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots of a branch, as far back as they have not expired."""

    snapshots: dict[int, Snapshot]

    @classmethod
    def of(cls, metadata: TableMetadata, branch: str) -> History:
        """The history of a branch."""
        newest_first = ancestors_of(metadata.snapshot_by_name(branch), metadata)
        return cls({snapshot.snapshot_id: snapshot for snapshot in newest_first})

    def goes_below(self, position: Position | None) -> bool:
        """Whether the history reaches back beyond a position."""
        if position is None:
            return False
        return any(position.is_above(snapshot) for snapshot in self.snapshots.values())


def _by_property(
    metadata: TableMetadata, branch: str, load_id: str, history: History
) -> CommittedWrite | None:
    for key, value in metadata.properties.items():
        if not _is_load(key) or key.partition(":")[2] != load_id:
            continue
        record = _record(value)
        if record.snapshot_id < 0:
            continue
        is_expired = metadata.snapshot_by_id(record.snapshot_id) is None
        stood_here = key == _key(branch, load_id) and not history.goes_below(record.position)
        if record.snapshot_id in history.snapshots or (is_expired and stood_here):
            return CommittedWrite(record.snapshot_id, record.counts)
    return None


def remember_change(
    change: Change, metadata: TableMetadata, snapshot_id: int
) -> tuple[TableUpdate, ...]:
    """The update that stores the load of a change, if it has a load id."""
    if change.load_id is None:
        return ()
    return remember_load(
        branch=change.branch,
        load_id=change.load_id,
        snapshot_id=snapshot_id,
        counts=change.counts,
        position=Position.next(metadata),
    )


def remember_load(
    *, branch: str, load_id: str, snapshot_id: int, counts: Counts, position: Position | None
) -> tuple[TableUpdate, ...]:
    """The update that stores a load.

    Args:
        branch: The branch that it is committed to.
        load_id: Its id.
        snapshot_id: Its snapshot.
        counts: Its counts.
        position: The position of its snapshot, or a lower bound; None if it is not known.
    """
    record: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "committed-ms": _now_ms(),
        "counts": asdict(counts),
    }
    if position is not None:
        record["timestamp-ms"] = position.timestamp_ms
        if position.sequence_number is not None:
            record["sequence-number"] = position.sequence_number
    text = json.dumps(record, sort_keys=True)
    return (SetPropertiesUpdate(updates={_key(branch, load_id): text}),)


def forget_loads(
    properties: Mapping[str, str], *, branch: str, load_id: str | None, replaced: bool = False
) -> tuple[TableUpdate, ...]:
    """The update that removes loads beyond the retention, if there are any.

    Args:
        properties: The table's properties.
        branch: The branch of the next load.
        load_id: Its id; without an id, no load is beyond the retention.
        replaced: Whether it replaces all rows, and with them the rows of earlier inputs.
    """
    gone = {key for key in properties if replaced and key.startswith(_key(branch, _INPUTS))}
    if load_id is None:
        return (RemovePropertiesUpdate(removals=sorted(gone)),) if gone else ()
    days = whole_number(properties, _RETENTION_DAYS, 30)
    count = whole_number(properties, _RETENTION_COUNT, 1000)
    records = {key: _record(value) for key, value in properties.items() if _is_load(key)}
    outdated = gone | {key for key in records if _is_outdated(key, branch, load_id)}
    newest_first = sorted(
        (key for key in records if key not in outdated),
        key=lambda key: records[key].committed_ms,
        reverse=True,
    )
    oldest_ms = _now_ms() - days * _DAY_MS
    forgotten = sorted(outdated)
    for position, key in enumerate(newest_first):
        has_age_limit = not is_inputs_load_id(key.partition(":")[2])
        is_old = records[key].committed_ms < oldest_ms and has_age_limit
        if position >= count - 1 or is_old:
            forgotten.append(key)
    return (RemovePropertiesUpdate(removals=forgotten),) if forgotten else ()


def forget_branch(properties: Mapping[str, str], *, branch: str) -> tuple[TableUpdate, ...]:
    """The update that removes all loads of a branch that is dropped or starts anew, if any."""
    forgotten = sorted(key for key in properties if key.startswith(_key(branch, "")))
    return (RemovePropertiesUpdate(removals=forgotten),) if forgotten else ()


def copy_loads(properties: Mapping[str, str], *, branch: str, onto: str) -> tuple[TableUpdate, ...]:
    """The update that stores the loads of a branch for another one, if it lacks any."""
    start = _key(branch, "")
    copies = {
        _key(onto, key.removeprefix(start)): value
        for key, value in properties.items()
        if key.startswith(start)
    }
    missing = {key: value for key, value in copies.items() if key not in properties}
    return (SetPropertiesUpdate(updates=missing),) if missing else ()


def _is_outdated(key: str, branch: str, load_id: str) -> bool:
    """Whether a property belongs to an old batch of the stream whose next batch is committed."""
    coming, stored = batch_of_load(load_id), batch_of_load(key.partition(":")[2])
    if coming is None or stored is None or not key.startswith(_key(branch, "")):
        return False
    return stored[0] == coming[0] and stored[1] <= coming[1] - _BATCHES_KEPT


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(branch: str, load_id: str) -> str:
    return f"{_PREFIX}{quote(branch, safe='')}:{load_id}"  # the first colon ends the branch


def _is_load(key: str) -> bool:
    return key.startswith(_PREFIX) and ":" in key


@dataclass(frozen=True, slots=True)
class _Record:
    """A load in a table property."""

    snapshot_id: int
    committed_ms: int
    counts: Counts
    position: Position | None = None


def _record(value: str) -> _Record:
    """Read a property; an invalid one counts as the oldest."""
    try:
        facts = json.loads(value)
        counts = Counts(**facts["counts"])
        ids = int(facts["snapshot-id"]), int(facts["committed-ms"])
        return _Record(*ids, counts, _position(facts))
    except (KeyError, TypeError, ValueError):
        return _Record(snapshot_id=-1, committed_ms=0, counts=Counts())


def _position(record: Mapping[str, Any]) -> Position | None:
    """The position of a load's snapshot; older versions of icestream did not store it."""
    if "timestamp-ms" not in record:
        return None
    number = record.get("sequence-number")
    return Position(None if number is None else int(number), int(record["timestamp-ms"]))


def position_of(metadata: TableMetadata, branch: str, load_id: str) -> Position | None:
    """The position of a load's snapshot, if it is known."""
    value = metadata.properties.get(_key(branch, load_id))
    record = None if value is None else _record(value)
    snapshot = metadata.snapshot_by_id(record.snapshot_id) if record is not None else None
    if snapshot is not None:
        return Position.of(snapshot)
    return record.position if record is not None else None
