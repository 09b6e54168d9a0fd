"""Decides whether an unreferenced file is an orphan, and if not, why it is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from icestream.operations.upkeep.folder import Folder, StoredFile
from icestream.operations.upkeep.markers import Marker, Markers

Verdict = Literal["in-flight", "unreferenced", "young", "live", "others"]


class Judge:
    """Classifies unreferenced files.

    Args:
        markers: The markers in the table's metadata folder.
        metadata_folder: The table's metadata folder.
        cutoff_ms: Files written after this time are too young.
        now_ms: The current time.
        of_others: Markers of other tables that write into this table's folders.
    """

    def __init__(
        self,
        markers: Markers,
        metadata_folder: Folder,
        cutoff_ms: int,
        now_ms: int,
        of_others: Sequence[Markers] = (),
    ) -> None:
        self._markers = markers
        self._of_others = of_others
        self._metadata_folder = metadata_folder
        self._cutoff_ms = cutoff_ms
        self._now_ms = now_ms
        self._newest_ms: dict[str, int] = {}
        self._first_live_start_ms = min(
            (marker.started_ms for marker in markers if marker.is_live(now_ms)), default=None
        )

    def look_at(self, files: Iterable[StoredFile]) -> None:
        """Record the newest file of each write, which shows when the write was last active."""
        for file in files:
            marker = self._markers.of(file.name)
            if marker is not None:
                newest = self._newest_ms.get(marker.write_id, 0)
                self._newest_ms[marker.write_id] = max(newest, file.modified_ms or self._now_ms)

    def verdict(self, file: StoredFile) -> Verdict:
        """Classify a file. Call `look_at` for all files first."""
        marker = self._markers.of(file.name)
        if marker is not None:
            return self._verdict_on_write(marker)
        if any(markers.of(file.name) is not None for markers in self._of_others):
            return "others"
        if file.modified_ms is None or file.modified_ms > self._cutoff_ms:
            return "young"
        live = self._first_live_start_ms
        if live is not None and file.modified_ms >= live and self._metadata_folder.holds(file.key):
            return "live"  # It may be a manifest of a running commit, whose name lacks the id.
        return "unreferenced"

    def _verdict_on_write(self, marker: Marker) -> Verdict:
        if not marker.is_ours:
            return "others"
        if marker.is_live(self._now_ms):
            return "live"
        sign_ms = max(marker.renewed_ms, self._newest_ms.get(marker.write_id, 0))
        return "young" if sign_ms > self._cutoff_ms else "in-flight"
