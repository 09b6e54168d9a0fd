"""Load ids: a load that was committed once is not committed again.

A committed load is remembered twice: in its snapshot's summary, and in a table property of its own
(`icestream.load.<branch>:<id>`), which outlives the snapshot's expiry. Properties are kept for 30
days and for the newest 1,000 loads; the table properties `icestream.load.retention-days` and
`icestream.load.retention-count` say otherwise.

A load counts as committed on a branch while its snapshot is in the branch's history. A snapshot
that exists but is not in the history was rolled back: such a load counts as not committed. A
snapshot that is gone from the table has expired. The property has its sequence number (in tables of
version 1, its time): where the history goes further back than that without the snapshot, it was
rolled back before it expired. Where the history ends before, the load counts as committed.

A batch of a stream is a load, too, and of each stream the properties of its newest 10 batches are
kept: a stream is never asked for older ones again, and must not push out the ids of other loads.

An append that is known by its inputs (`inputs:<definition>:<inputs>`) has no age limit: a pipeline
that runs every night offers the same file for years.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from icestream.commit.change import Counts
from icestream.commit.table_property import whole_number
from icestream.errors import InvalidArgumentError

LOAD_ID_KEY = "icestream.load-id"
WRITE_IDS_KEY = "icestream.write-ids"
REPLACED_KEY = "icestream.replaced"  # "true" of a snapshot that has no row of those before it
_PREFIX = "icestream.load."
_RETENTION_DAYS = "icestream.load.retention-days"
_RETENTION_COUNT = "icestream.load.retention-count"
_DAY_MS = 24 * 3600 * 1000
_MOST_CHARACTERS = 500
_BATCHES_KEPT = 10
_INPUTS = "inputs:"
_STREAM_BATCH = re.compile(r"stream:(.+):(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CommittedLoad:
    """A load that is in the table already.

    Attributes:
        snapshot_id: The snapshot that it made.
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
            "characters that names this load and no other"
        )


def batch_load_id(stream_id: str, batch_id: int) -> str:
    """The load id of a batch of a stream."""
    return f"stream:{stream_id}:{batch_id}"


def inputs_load_id(definition: str, inputs: str) -> str:
    """The load id of an append that is known by its inputs. No age limit applies to it."""
    return f"{_INPUTS}{definition}:{inputs}"


def is_inputs_load_id(load_id: str | None) -> bool:
    """Whether a load is known by its inputs."""
    return load_id is not None and load_id.startswith(_INPUTS)


def batch_of_load(load_id: str) -> tuple[str, int] | None:
    """The stream and the number of a batch, if the load is one."""
    found = _STREAM_BATCH.fullmatch(load_id)
    return (found[1], int(found[2])) if found else None


def find_load(metadata: TableMetadata, branch: str, load_id: str | None) -> CommittedLoad | None:
    """The load with that id, if it is in the branch.

    One that is known by its inputs does not count once all rows were replaced or deleted.
    """
    if load_id is None:
        return None
    history = History.of(metadata, branch)
    found = _find(metadata, branch, load_id, history)
    if found is None or not is_inputs_load_id(load_id):
        return found
    return None if _is_replaced(found.snapshot_id, history.snapshots) else found


def _find(
    metadata: TableMetadata, branch: str, load_id: str, history: History
) -> CommittedLoad | None:
    if found := _by_property(metadata, branch, load_id, history):
        return found
    for snapshot in history.snapshots.values():
        if snapshot.summary and snapshot.summary.additional_properties.get(LOAD_ID_KEY) == load_id:
            return load_of(snapshot)
    return None


def _is_replaced(snapshot_id: int, history: Mapping[int, Snapshot]) -> bool:
    """Whether a newer snapshot of a history, newest first, has no row of the ones before it."""
    for snapshot in history.values():
        if snapshot.snapshot_id == snapshot_id:
            return False
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if summary.get(REPLACED_KEY) == "true" or summary.get("total-records") == "0":
            return True
    return False


def load_of(snapshot: Snapshot) -> CommittedLoad:
    """A load as its snapshot tells of it."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return CommittedLoad(snapshot.snapshot_id, _counts_of(summary))


@dataclass(frozen=True, slots=True)
class Position:
    """Where a snapshot is in a table's history.

    Attributes:
        sequence_number: The snapshot's; None in tables of version 1.
        timestamp_ms: When it was made.
    """

    sequence_number: int | None
    timestamp_ms: int

    @classmethod
    def of(cls, snapshot: Snapshot) -> Position:
        """A snapshot's."""
        return cls(snapshot.sequence_number or None, snapshot.timestamp_ms)

    @classmethod
    def next(cls, metadata: TableMetadata) -> Position:
        """The next snapshot's, or one before it if others commit first."""
        return cls(metadata.next_sequence_number() or None, _now_ms())

    def is_above(self, snapshot: Snapshot) -> bool:
        """Whether another snapshot is older, so that this one is none of its ancestors."""
        if self.sequence_number is not None and snapshot.sequence_number:
            return snapshot.sequence_number <= self.sequence_number
        return snapshot.timestamp_ms < self.timestamp_ms


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots of a branch, as far back as they have not expired."""

    snapshots: dict[int, Snapshot]

    @classmethod
    def of(cls, metadata: TableMetadata, branch: str) -> History:
        """A branch's."""
        newest_first = ancestors_of(metadata.snapshot_by_name(branch), metadata)
        return cls({snapshot.snapshot_id: snapshot for snapshot in newest_first})

    def goes_below(self, position: Position | None) -> bool:
        """Whether a snapshot at that position would be in it, had it ever been."""
        if position is None:
            return False
        return any(position.is_above(snapshot) for snapshot in self.snapshots.values())


def _by_property(
    metadata: TableMetadata, branch: str, load_id: str, history: History
) -> CommittedLoad | None:
    for key, value in metadata.properties.items():
        if not _is_load(key) or key.partition(":")[2] != load_id:
            continue
        record = _record(value)
        if record.snapshot_id < 0:
            continue
        is_expired = metadata.snapshot_by_id(record.snapshot_id) is None
        stood_here = key == _key(branch, load_id) and not history.goes_below(record.position)
        if record.snapshot_id in history.snapshots or (is_expired and stood_here):
            return CommittedLoad(record.snapshot_id, record.counts)
    return None


def remember_load(
    *, branch: str, load_id: str, snapshot_id: int, counts: Counts, position: Position | None
) -> tuple[TableUpdate, ...]:
    """The update that stores a load.

    Args:
        branch: Where it is committed.
        load_id: Its id.
        snapshot_id: Its snapshot.
        counts: Its counts.
        position: Its snapshot's, or one before it; None if that is not known.
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
    """The update that forgets loads beyond the retention, if there are any.

    Args:
        properties: The table's.
        branch: Where one more load is coming.
        load_id: Its id; without one, nothing is beyond the retention.
        replaced: Whether it replaces all rows, and with them those of inputs loaded before.
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
    forgotten = sorted(outdated) + [
        key
        for position, key in enumerate(newest_first)
        if position >= count - 1 or _is_older(key, records[key], oldest_ms)
    ]
    return (RemovePropertiesUpdate(removals=forgotten),) if forgotten else ()


def forget_branch(properties: Mapping[str, str], *, branch: str) -> tuple[TableUpdate, ...]:
    """The update that forgets all loads of a branch, which is dropped or starts anew, if any."""
    forgotten = sorted(key for key in properties if key.startswith(_key(branch, "")))
    return (RemovePropertiesUpdate(removals=forgotten),) if forgotten else ()


def _is_older(key: str, record: _Record, oldest_ms: int) -> bool:
    """Whether a load is older than the retention; inputs may be offered again at any age."""
    return record.committed_ms < oldest_ms and not key.partition(":")[2].startswith(_INPUTS)


def _is_outdated(key: str, branch: str, load_id: str) -> bool:
    """Whether a property is of an old batch of the stream that has one more coming."""
    coming, stored = batch_of_load(load_id), batch_of_load(key.partition(":")[2])
    if coming is None or stored is None or not key.startswith(_key(branch, "")):
        return False
    return stored[0] == coming[0] and stored[1] <= coming[1] - _BATCHES_KEPT


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(branch: str, load_id: str) -> str:
    return f"{_PREFIX}{quote(branch, safe='')}:{load_id}"  # so that the first colon ends the branch


def _is_load(key: str) -> bool:
    return key.startswith(_PREFIX) and ":" in key


@dataclass(frozen=True, slots=True)
class _Record:
    """What a property says of a load."""

    snapshot_id: int
    committed_ms: int
    counts: Counts
    position: Position | None = None


def _record(value: str) -> _Record:
    """Read a property; one that somebody else has written is as old as can be."""
    try:
        found = json.loads(value)
        counts = Counts(**found["counts"])
        ids = int(found["snapshot-id"]), int(found["committed-ms"])
        return _Record(*ids, counts, _position(found))
    except (KeyError, TypeError, ValueError):
        return _Record(snapshot_id=-1, committed_ms=0, counts=Counts())


def _position(record: Mapping[str, Any]) -> Position | None:
    """Where a load's snapshot is; older versions of icestream did not store that."""
    if "timestamp-ms" not in record:
        return None
    number = record.get("sequence-number")
    return Position(None if number is None else int(number), int(record["timestamp-ms"]))


def position_of(metadata: TableMetadata, branch: str, load_id: str) -> Position | None:
    """Where the snapshot of a load of a branch is, if that is known."""
    value = metadata.properties.get(_key(branch, load_id))
    record = None if value is None else _record(value)
    snapshot = metadata.snapshot_by_id(record.snapshot_id) if record is not None else None
    if snapshot is not None:
        return Position.of(snapshot)
    return record.position if record is not None else None


def _counts_of(summary: Mapping[str, Any]) -> Counts:
    names = {
        "rows_inserted": "added-records",
        "rows_deleted": "deleted-records",
        "files_added": "added-data-files",
        "files_removed": "deleted-data-files",
        "bytes_written": "added-files-size",
    }
    return Counts(**{name: int(summary.get(key, 0)) for name, key in names.items()})
