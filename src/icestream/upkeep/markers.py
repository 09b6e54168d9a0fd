"""The markers that writes leave in a table's metadata folder while they last."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.table.metadata import TableMetadata

from icestream.commit.in_flight import MARKER_PREFIX
from icestream.upkeep.folder import Folder, StoredFile

# A process that runs is believed to be the marker's for as long, if the marker is not renewed.
_BELIEVED_MS = 3 * 24 * 60 * 60 * 1000
_START_SLACK_MS = 10_000
_NO_ID = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Marker:
    """A write that is under way, or that died.

    Attributes:
        file: The marker itself.
        write_id: Part of the name of every file of the write.
        is_ours: Whether the write is for this table, or for one that was to be where it is now and
            never came to be: a metadata folder may be shared.
        operation: What the write does.
        started_ms: When it began.
        renewed_ms: Its last sign of life.
        runs_here: Whether its process runs on this machine.
    """

    file: StoredFile
    write_id: str
    is_ours: bool
    operation: str
    started_ms: int
    renewed_ms: int
    runs_here: bool

    def is_live(self, now_ms: int) -> bool:
        """Whether the write is known to go on, however old its files are."""
        return self.runs_here and now_ms - self.renewed_ms < _BELIEVED_MS


class Markers:
    """All markers of a metadata folder."""

    def __init__(self, markers: Iterable[Marker]) -> None:
        self._by_id = {marker.write_id: marker for marker in markers}
        ids = "|".join(re.escape(write_id) for write_id in self._by_id)
        self._any_id = re.compile(ids) if ids else _NO_ID

    @classmethod
    def read(
        cls,
        folder: Folder,
        metadata: TableMetadata,
        *,
        others: Collection[str] = (),
        dropped: Collection[str] = (),
        is_shared: bool = False,
    ) -> Markers:
        """Read the markers of a table.

        Args:
            folder: The table's metadata folder.
            metadata: The table.
            others: Ids of tables that are known to have files in the same folders.
            dropped: Ids of tables that are dropped: what they left is this table's to clean up.
            is_shared: Whether other tables may have their metadata in the same folder.
        """
        owners = _Owners(metadata, frozenset(others), frozenset(dropped), is_shared)
        return cls(
            _read(file, owners)
            for file in folder.files(recursive=False)
            if file.name.startswith(MARKER_PREFIX) and file.name.endswith(".json")
        )

    def __iter__(self) -> Iterator[Marker]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, file_name: str) -> Marker | None:
        """The write that a file belongs to, by its name; of a marker, that marker."""
        match = self._any_id.search(file_name)
        return self._by_id[match[0]] if match else None


@dataclass(frozen=True, slots=True)
class _Owners:
    """Whose writes markers may be of."""

    metadata: TableMetadata
    others: frozenset[str]
    dropped: frozenset[str]
    is_shared: bool

    def are_us(self, facts: dict[str, object]) -> bool:
        """Whether a marker is the table's.

        A killed load that was to create a table leaves the id of one that never was: it counts if
        no table with that id is known. A marker that was cut off may be anybody's.
        """
        uuid = facts.get("table-uuid")
        if uuid is None:
            return not self.others and not self.is_shared
        if str(uuid) == str(self.metadata.table_uuid) or str(uuid) in self.dropped:
            return True
        if str(uuid) in self.others or self.is_shared:
            return False
        location = str(facts.get("table-location", "")).rstrip("/")
        return location == self.metadata.location.rstrip("/")


def _read(file: StoredFile, owners: _Owners) -> Marker:
    """A marker; one that was cut off while it was written counts by its name and age."""
    try:
        facts = json.loads(file.read())
        facts = facts if isinstance(facts, dict) else {}
    except (OSError, ValueError):
        facts = {}
    written_ms = file.modified_ms if file.modified_ms is not None else time.time_ns() // 1_000_000
    started_ms = _number(facts.get("started-ms"), written_ms)
    return Marker(
        file=file,
        write_id=file.name.removeprefix(MARKER_PREFIX).removesuffix(".json"),
        is_ours=owners.are_us(facts),
        operation=str(facts.get("operation", "unknown")),
        started_ms=started_ms,
        renewed_ms=max(written_ms, _number(facts.get("renewed-ms"), written_ms)),
        runs_here=_runs_here(facts.get("host"), facts.get("pid"), started_ms),
    )


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _runs_here(host: object, pid: object, started_ms: int) -> bool:
    """Whether a process of this machine is the one that began a write."""
    if host != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return False
    if sys.platform == "win32":
        return True  # there is no asking without harm: `os.kill` would end it
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return False
    began_ms = _process_start_ms(pid)
    return began_ms is None or began_ms <= started_ms + _START_SLACK_MS


def _process_start_ms(pid: int) -> int | None:
    """When a process began; another one may have got the number, as in a restarted container."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])
        boot = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        return boot * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
