"""The markers of unfinished writes in a table's metadata folder."""

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

from icestream.commit.in_flight import MARKER_PREFIX, MARKER_SUFFIX
from icestream.operations.upkeep.folder import Folder, StoredFile
from icestream.operations.upkeep.manifest_entries import unreadable

# A running process with the marker's pid counts as its writer for this long after a renewal.
_BELIEVED_MS = 3 * 24 * 60 * 60 * 1000
_START_SLACK_MS = 10_000
_MOST_BYTES = 1 << 20  # A marker has a few hundred bytes, and paths of any length.
_ENDED_STATES = ("Z", "X", "x")
_SUFFIXES = (MARKER_SUFFIX, ".json")  # Versions before 0.1 wrote ".json".
_NO_ID = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class Marker:
    """A write that is running, or that died.

    Attributes:
        file: The marker file.
        write_id: The id of the write, which is part of the name of each of its files.
        is_ours: Whether the write belongs to this table, or to a table that was never created at
            this location. A metadata folder may be shared.
        operation: The operation of the write.
        started_ms: When the write began.
        renewed_ms: When the marker was last renewed.
        runs_here: Whether the writing process runs on this machine.
    """

    file: StoredFile
    write_id: str
    is_ours: bool
    operation: str
    started_ms: int
    renewed_ms: int
    runs_here: bool

    def is_live(self, now_ms: int) -> bool:
        """Whether the write is known to be running, regardless of the age of its files."""
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
            dropped: Ids of dropped tables: their writes count as this table's.
            is_shared: Whether other tables may have their metadata in the same folder.

        Raises:
            CatalogError: If the folder can't be listed, or a marker can't be read.
            CredentialsExpiredError: If credentials have expired, and there are no new ones.
        """
        owners = _Owners(metadata, frozenset(others), frozenset(dropped), is_shared)
        return cls(
            _read(file, owners)
            for file in folder.files(recursive=False)
            if file.name.startswith(MARKER_PREFIX) and file.name.endswith(_SUFFIXES)
        )

    def __iter__(self) -> Iterator[Marker]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, file_name: str) -> Marker | None:
        """The marker of the write that a file belongs to, by the file's name."""
        match = self._any_id.search(file_name)
        return self._by_id[match[0]] if match else None


@dataclass(frozen=True, slots=True)
class _Owners:
    """Decides whether a marker belongs to the table."""

    metadata: TableMetadata
    others: frozenset[str]
    dropped: frozenset[str]
    is_shared: bool

    def are_us(self, facts: dict[str, object]) -> bool:
        """Whether a marker with this content belongs to the table.

        If a write is killed before it creates its table, no table has the id in its marker. So a
        marker counts if no table with its id is known. A truncated marker may belong to any table.
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
    """Read a marker. A truncated one counts by its name and age.

    It is an error if the store fails to return a marker, because its write may be running.
    """
    try:
        facts = json.loads(file.read(most_bytes=_MOST_BYTES))
        facts = facts if isinstance(facts, dict) else {}
    except (FileNotFoundError, ValueError, RecursionError):
        facts = {}
    except OSError as error:
        raise unreadable(file.path, error) from error
    written_ms = file.modified_ms if file.modified_ms is not None else time.time_ns() // 1_000_000
    started_ms = _number(facts.get("started-ms"), written_ms)
    return Marker(
        file=file,
        write_id=file.name.removeprefix(MARKER_PREFIX).rpartition(".")[0],
        is_ours=owners.are_us(facts),
        operation=str(facts.get("operation", "unknown")),
        started_ms=started_ms,
        renewed_ms=max(written_ms, _number(facts.get("renewed-ms"), written_ms)),
        runs_here=_runs_here(facts.get("host"), facts.get("pid"), started_ms),
    )


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _runs_here(host: object, pid: object, started_ms: int) -> bool:
    """Whether the process that began a write runs on this machine."""
    if host != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return False
    if sys.platform == "win32":
        return True  # There is no safe check: `os.kill` would end the process.
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return False
    if _has_ended(pid):
        return False
    began_ms = _process_start_ms(pid)
    return began_ms is None or began_ms <= started_ms + _START_SLACK_MS


def _has_ended(pid: int) -> bool:
    """Whether a process has ended and only waits for its parent to notice.

    In containers without an init process, nobody notices the end of Spark's Python workers.
    """
    try:
        return _process_facts(pid)[0] in _ENDED_STATES
    except (OSError, IndexError):
        return False


def _process_facts(pid: int) -> list[str]:
    """The line of `/proc/<pid>/stat` after the name of the command, from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _process_start_ms(pid: int) -> int | None:
    """When a process began. A pid may be reused, for example in a restarted container."""
    try:
        ticks = int(_process_facts(pid)[19])
        boot = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        return boot * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None
