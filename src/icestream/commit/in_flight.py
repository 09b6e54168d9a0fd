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

from icestream.commit.cleanup import delete_files
from icestream.write.target import WriteTarget

MARKER_PREFIX = "icestream-in-flight-"
_BEAT_SECONDS = 60
_log = logging.getLogger(__name__)


class InFlightWrite:
    """Holds the marker, and deletes the write's files if it comes to nothing.

    Args:
        target: The write.
        operation: What it is about, for people who read the marker.
    """

    def __init__(self, target: WriteTarget, *, operation: str) -> None:
        locations = load_location_provider(target.metadata.location, target.properties)
        self.marker = locations.new_metadata_location(f"{MARKER_PREFIX}{target.write_id}.json")
        self.uncertain = False
        self._target = target
        self._operation = operation
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
                "operation": self._operation,
                "started-ms": self._started_ms,
                "renewed-ms": time.time_ns() // 1_000_000,
                "host": socket.gethostname(),
                "pid": os.getpid(),
            }
            output = self._target.io.new_output(self.marker)
            with output.create(overwrite=True) as stream:
                stream.write(json.dumps(facts).encode())
            self._marked_at = now

    def add(self, paths: Iterable[str]) -> None:
        """Name data files of the write, to be deleted if it comes to nothing."""
        self._paths.extend(paths)

    def committed(self) -> None:
        """The files belong to the table now: remove the marker only."""
        self._paths.clear()
        self._remove_marker()

    def abandon(self) -> None:
        """Delete the files and the marker, unless the commit may have happened. Never raises."""
        if self.uncertain:
            _log.debug("the outcome of the commit is not known: %s is kept", self.marker)
            return
        left = delete_files(self._target.io, self._paths)
        self._paths.clear()
        if not left:
            self._remove_marker()

    def _remove_marker(self) -> None:
        if self._marked_at is not None:
            delete_files(self._target.io, [self.marker])
            self._marked_at = None
