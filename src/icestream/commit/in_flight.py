"""A write between its first file and its settled commit.

While a write is under way, a marker in the table's metadata folder names it. All file names of the
write contain the same id, so `icestream.orphans` finds the files that a killed process left, even
if other workers wrote them. A live write renews its marker, so a long write does not look dead.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable

from pyiceberg.io import FileIO
from pyiceberg.table.locations import load_location_provider

from icestream.catalogs.credentials import renewing
from icestream.commit.cleanup import delete_files, missing_files
from icestream.commit.outcome.unknown_outcome import CommitRequests
from icestream.errors import CredentialsExpiredError, InvalidArgumentError, WriteError
from icestream.write.new_file import NewFile
from icestream.write.target import WriteTarget

MARKER_PREFIX = "icestream-in-flight-"
# Not ".json": dlt reads the last JSON file of a metadata folder as the table's current metadata.
MARKER_SUFFIX = ".marker"
_BEAT_SECONDS = 60
_log = logging.getLogger(__name__)


class InFlightWrite:
    """Holds the marker, and deletes the write's files if they are not committed.

    Attributes:
        marker: The marker's path.
        requests: The requests that were sent to commit the files; None before the first.

    Args:
        target: The write.
        operation: What the write does, for people who read the marker.
        shared: Whether other workers write under the same id; the marker then outlives this one.
    """

    def __init__(self, target: WriteTarget, *, operation: str, shared: bool = False) -> None:
        self.marker = marker_path(target, target.write_id)
        self.requests: CommitRequests | None = None
        self._taken: dict[str, list[str]] = {}
        self._owns_taken = False
        self._target = target
        self._operation = operation
        self._shared = shared
        self._started_ms = time.time_ns() // 1_000_000
        self._paths: list[str] = []
        self._marked_at: float | None = None
        self._lock = threading.Lock()

    def mark(self) -> None:
        """Write the marker, or renew it after a minute. Call this between batches."""
        with self._lock:
            now = time.monotonic()
            if self._marked_at is not None and now - self._marked_at < _BEAT_SECONDS:
                return
            facts = {
                "write-id": self._target.write_id,
                "table-uuid": str(self._target.metadata.table_uuid),
                "table-location": self._target.metadata.location,
                "operation": self._operation,
                "started-ms": self._started_ms,
                "renewed-ms": time.time_ns() // 1_000_000,
                "host": socket.gethostname(),
                "pid": os.getpid(),
            }
            try:
                renewing(self._target.io, lambda: self._write(facts), path=self.marker)
            except CredentialsExpiredError:
                self._marked_at = now
                raise
            except Exception as error:
                self._marked_at = now  # a part of it may have been written
                raise WriteError(
                    f"{self.marker} could not be written: {error}. Is there space, and may this "
                    "process write to the table's folder?",
                    path=self.marker,
                ) from error
            self._marked_at = now

    def _write(self, facts: dict[str, object]) -> None:
        with self._target.io.new_output(self.marker).create(overwrite=True) as stream:
            stream.write(json.dumps(facts).encode())

    def add(self, paths: Iterable[str]) -> None:
        """Name data files of the write, to delete if they are not committed."""
        self._paths.extend(paths)

    def take_over(self, files: Iterable[NewFile], *, owned: bool) -> None:
        """Take over uncommitted files of other writes, and their markers.

        A write without a marker was settled, so its files may not exist any more.

        Args:
            files: The files.
            owned: Whether no other commit adds these files; they are deleted if this one fails.
                Otherwise they stay, with their markers: an earlier call, or one in another process,
                may have sent a commit of them that still lands.

        Raises:
            InvalidArgumentError: If files do not exist any more.
        """
        self._owns_taken = owned
        for file in files:
            self._taken.setdefault(file.write_id, []).append(file.path)
        markers = {marker_path(self._target, write_id): write_id for write_id in self._taken}
        settled = [markers[marker] for marker in missing_files(self._target.io, markers)]
        paths = [path for write_id in settled for path in self._taken[write_id]]
        if gone := missing_files(self._target.io, paths):
            raise InvalidArgumentError(
                f"{len(gone)} of the files are gone, such as {gone[0]}: icestream.orphans or "
                "another clean-up has deleted them. Write them again"
            )

    def give_back(self) -> None:
        """Leave the files that were taken over as they are, with their markers."""
        self._taken.clear()

    def committed(self) -> None:
        """The files belong to the table now: delete only the markers."""
        markers = self._markers()
        self._paths.clear()  # before anything else: these files must never be deleted
        self._taken.clear()
        delete_files(self._target.io, markers)

    def superseded(self) -> None:
        """The same load is in the table already: delete the files of this write.

        Files that were taken over stay, with their markers: they may be the files in the table.
        """
        self.give_back()
        self.abandon()

    def abandon(self) -> None:
        """Delete the files and the marker, unless the commit may have happened. Never raises.

        Files that were taken over and are not owned stay as they are.
        """
        if self.requests is not None and self.requests.may_be_in_table:
            _log.debug("the commit happened, or may still happen: %s is kept", self.marker)
            return
        if not self._owns_taken:
            self.give_back()
        taken = [path for paths in self._taken.values() for path in paths]
        left = delete_files(self._target.io, [*self._paths, *taken])
        self._paths.clear()
        if not left:
            delete_files(self._target.io, self._markers())
        self._taken.clear()

    def _markers(self) -> list[str]:
        own = [self.marker] if self._marked_at is not None and not self._shared else []
        return [*own, *(marker_path(self._target, write_id) for write_id in self._taken)]


class InFlightWrites:
    """Several writes that one commit settles.

    Args:
        io: Deletes files.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._writes: list[InFlightWrite] = []
        self._unused: list[str] = []

    def add(self, write: InFlightWrite) -> None:
        """Add a write."""
        self._writes.append(write)

    def drop(self, paths: Iterable[str]) -> None:
        """Name files that the commit does not add, to delete when it is settled."""
        self._unused.extend(paths)

    @property
    def requests(self) -> CommitRequests | None:
        """The requests that were sent to commit the files; None before the first."""
        return next((write.requests for write in self._writes), None)

    @requests.setter
    def requests(self, requests: CommitRequests) -> None:
        for write in self._writes:
            write.requests = requests

    def give_back(self) -> None:
        """Leave files that were taken over from other writes as they are."""
        for write in self._writes:
            write.give_back()

    def committed(self) -> None:
        """The files belong to the table now: delete the markers, and files that it does not use."""
        for write in self._writes:
            write.committed()
        delete_files(self._io, self._unused)

    def abandon(self) -> None:
        """Delete the files and the markers, unless the commit may have happened."""
        for write in self._writes:
            write.abandon()
        if self.requests is None or not self.requests.may_be_in_table:
            delete_files(self._io, self._unused)


def marker_path(target: WriteTarget, write_id: str) -> str:
    """The path of a write's marker."""
    locations = load_location_provider(target.metadata.location, target.properties)
    return locations.new_metadata_location(f"{MARKER_PREFIX}{write_id}{MARKER_SUFFIX}")
