"""A write between its first file and its settled commit.

A marker in the table's metadata folder names the write while it lasts. Every file name of the write
carries the same id, so that what a killed process leaves behind is found by `icestream.orphans`
without guessing, also where other workers wrote the files. A live write renews its marker, so that
a long one is never taken for a dead one.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable

from pyiceberg.table.locations import load_location_provider

from icestream.commit.cleanup import delete_files, missing_files
from icestream.commit.sent import SentCommit
from icestream.credentials import renewing
from icestream.errors import CredentialsExpiredError, InvalidArgumentError, WriteError
from icestream.write.new_file import NewFile
from icestream.write.target import WriteTarget

MARKER_PREFIX = "icestream-in-flight-"
_BEAT_SECONDS = 60
_log = logging.getLogger(__name__)


class InFlightWrite:
    """Holds the marker, and deletes the write's files if it comes to nothing.

    Attributes:
        marker: Where the marker is.
        sent: What was sent to the catalog to commit the files, once anything was.

    Args:
        target: The write.
        operation: What it is about, for people who read the marker.
        shared: Whether other workers write under the same id: then the marker outlives this one.
    """

    def __init__(self, target: WriteTarget, *, operation: str, shared: bool = False) -> None:
        self.marker = marker_path(target, target.write_id)
        self.sent: SentCommit | None = None
        self._taken: dict[str, list[str]] = {}
        self._target = target
        self._operation = operation
        self._shared = shared
        self._started_ms = time.time_ns() // 1_000_000
        self._paths: list[str] = []
        self._marked_at: float | None = None
        self._lock = threading.Lock()

    def mark(self) -> None:
        """Write the marker, or renew it if it is older than a minute. Call it between batches."""
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
                self._marked_at = now  # a part of it may be there
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
        """Name data files of the write, to be deleted if it comes to nothing."""
        self._paths.extend(paths)

    def take_over(self, files: Iterable[NewFile]) -> None:
        """Take files that other writes have left to be committed, and their markers.

        A write without a marker was settled: then its files are looked for.

        Raises:
            InvalidArgumentError: If files are gone: an earlier commit of them was refused.
        """
        for file in files:
            self._taken.setdefault(file.write_id, []).append(file.path)
        markers = {marker_path(self._target, write_id): write_id for write_id in self._taken}
        settled = [markers[marker] for marker in missing_files(self._target.io, markers)]
        paths = [path for write_id in settled for path in self._taken[write_id]]
        if gone := missing_files(self._target.io, paths):
            raise InvalidArgumentError(
                f"{len(gone)} of the files are gone, such as {gone[0]}: an earlier commit of them "
                "was refused, which deletes them. Write them again"
            )

    def give_back(self) -> None:
        """Leave the files taken over as they are, with their markers."""
        self._taken.clear()

    def committed(self) -> None:
        """The files belong to the table now: remove the markers only."""
        markers = self._markers()
        self._paths.clear()  # before anything else: they must never be deleted
        self._taken.clear()
        delete_files(self._target.io, markers)

    def superseded(self) -> None:
        """The same load is in the table already: delete what this write added to it.

        Files taken over stay, with their markers: they may be the very files in the table.
        """
        self.give_back()
        self.abandon()

    def abandon(self) -> None:
        """Delete the files and the marker, unless the commit may have happened. Never raises."""
        if self.sent is not None and self.sent.may_be_in_table:
            _log.debug("the commit happened, or may still happen: %s is kept", self.marker)
            return
        taken = [path for paths in self._taken.values() for path in paths]
        left = delete_files(self._target.io, [*self._paths, *taken])
        self._paths.clear()
        if not left:
            delete_files(self._target.io, self._markers())
        self._taken.clear()

    def _markers(self) -> list[str]:
        own = [self.marker] if self._marked_at is not None and not self._shared else []
        return [*own, *(marker_path(self._target, write_id) for write_id in self._taken)]


def marker_path(target: WriteTarget, write_id: str) -> str:
    """Where the marker of a write is."""
    locations = load_location_provider(target.metadata.location, target.properties)
    return locations.new_metadata_location(f"{MARKER_PREFIX}{write_id}.json")
