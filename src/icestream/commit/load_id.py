"""Load ids: a load that was committed once is not committed again.

A committed load is remembered twice: in its snapshot's summary, and in a table property of its own
(`icestream.load.<branch>:<id>`), which outlives the snapshot's expiry. Properties are kept for 30
days and for the newest 1,000 loads; the table properties `icestream.load.retention-days` and
`icestream.load.retention-count` say otherwise.

A load counts as committed on a branch while its snapshot is in the branch's history, or is gone
from the table altogether (expired). A snapshot that exists but is not in the history was rolled
back: such a load counts as not committed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate

from icestream.commit.change import Counts
from icestream.errors import InvalidArgumentError

LOAD_ID_KEY = "icestream.load-id"
WRITE_IDS_KEY = "icestream.write-ids"
_PREFIX = "icestream.load."
_RETENTION_DAYS = "icestream.load.retention-days"
_RETENTION_COUNT = "icestream.load.retention-count"
_DAY_MS = 24 * 3600 * 1000
_MOST_CHARACTERS = 500


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


def find_load(
    metadata: TableMetadata, branch: str, load_id: str | None, write_ids: Collection[str] = ()
) -> CommittedLoad | None:
    """The load with that id, or with files of those writes, if it is in the branch."""
    if load_id is None and not write_ids:
        return None
    history = {s.snapshot_id: s for s in ancestors_of(metadata.snapshot_by_name(branch), metadata)}
    if load_id is not None and (found := _by_property(metadata, branch, load_id, history)):
        return found
    for snapshot_id, snapshot in history.items():
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        writes = summary.get(WRITE_IDS_KEY, "").split(",")
        if (load_id is not None and summary.get(LOAD_ID_KEY) == load_id) or any(
            write_id in writes for write_id in write_ids
        ):
            return CommittedLoad(snapshot_id, _counts_of(summary))
    return None


def _by_property(
    metadata: TableMetadata, branch: str, load_id: str, history: Collection[int]
) -> CommittedLoad | None:
    for key, value in metadata.properties.items():
        if not key.startswith(_PREFIX) or key.partition(":")[2] != load_id:
            continue
        record = json.loads(value)
        snapshot_id = int(record["snapshot-id"])
        expired = metadata.snapshot_by_id(snapshot_id) is None
        if snapshot_id in history or (expired and key == _key(branch, load_id)):
            return CommittedLoad(snapshot_id, Counts(**record["counts"]))
    return None


def remember_load(
    metadata: TableMetadata,
    *,
    branch: str,
    load_id: str,
    snapshot_id: int,
    counts: Counts,
) -> tuple[TableUpdate, ...]:
    """The updates that store a load, and forget those beyond the retention."""
    now_ms = time.time_ns() // 1_000_000
    record = {"snapshot-id": snapshot_id, "committed-ms": now_ms, "counts": asdict(counts)}
    updates: list[TableUpdate] = [
        SetPropertiesUpdate(updates={_key(branch, load_id): json.dumps(record, sort_keys=True)})
    ]
    forgotten = _beyond_retention(metadata.properties, now_ms)
    if forgotten := [key for key in forgotten if key != _key(branch, load_id)]:
        updates.append(RemovePropertiesUpdate(removals=forgotten))
    return tuple(updates)


def _key(branch: str, load_id: str) -> str:
    return f"{_PREFIX}{branch}:{load_id}"


def _beyond_retention(properties: Mapping[str, str], now_ms: int) -> list[str]:
    days = int(properties.get(_RETENTION_DAYS, 30))
    count = int(properties.get(_RETENTION_COUNT, 1000))
    committed = sorted(
        (
            (int(json.loads(value)["committed-ms"]), key)
            for key, value in properties.items()
            if key.startswith(_PREFIX) and ":" in key
        ),
        reverse=True,
    )
    return [
        key
        for position, (when_ms, key) in enumerate(committed)
        if position >= count - 1 or when_ms < now_ms - days * _DAY_MS
    ]


def _counts_of(summary: Mapping[str, Any]) -> Counts:
    names = {
        "rows_inserted": "added-records",
        "rows_deleted": "deleted-records",
        "files_added": "added-data-files",
        "files_removed": "deleted-data-files",
        "bytes_written": "added-files-size",
    }
    return Counts(**{name: int(summary.get(key, 0)) for name, key in names.items()})
