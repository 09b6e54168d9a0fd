"""The position of a stream, in the form that Spark stores in a checkpoint.

Spark stores the end of each micro-batch, which is also the start of the next one. It does not store
the start of the first micro-batch but requests it each time, even to run the micro-batch again
after a crash, when "now" is another time. So the end of the first micro-batch also contains its
start, which overrides later requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from icestream.errors import StreamError

_VERSION = 1
_NO_SNAPSHOT = -1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in the history of a branch. Offsets with the same position are equal.

    Attributes:
        snapshot_id: The snapshot that was read last, or None before the first one.
        files: Number of files of the snapshot that were read, in order of their paths. None means
            all.
        whole: Whether `files` counts all files of the table at that snapshot, as for a stream that
            starts with existing rows, or only those that the snapshot added.
        is_initial: Whether this is the start of a stream at the time of the request.
        began: The start of the stream, in the offset that ends the first micro-batch.
    """

    snapshot_id: int | None
    files: int | None = None
    whole: bool = False
    is_initial: bool = field(default=False, compare=False)
    began: StreamOffset | None = field(default=None, compare=False)

    def start_of(self, start: StreamOffset) -> StreamOffset:
        """The start of the micro-batch that ends here. `start` is the start according to Spark."""
        if not start.is_initial:
            return start
        if self.is_initial:  # there was nothing to read
            return self
        return self.began or start

    def to_json(self, table_uuid: str) -> dict[str, Any]:
        """The data that Spark stores."""
        stored = {"version": _VERSION, "table": table_uuid, **self._place()}
        if self.is_initial:
            stored["initial"] = True
        if self.began is not None:
            stored["began"] = self.began._place()
        return stored

    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {
            "snapshot": _NO_SNAPSHOT if self.snapshot_id is None else self.snapshot_id
        }
        return place if self.files is None else {**place, "files": self.files, "whole": self.whole}

    @classmethod
    def _of_place(cls, stored: Mapping[str, Any]) -> StreamOffset:
        snapshot_id = int(stored["snapshot"])
        return cls(
            None if snapshot_id == _NO_SNAPSHOT else snapshot_id,
            stored.get("files"),
            bool(stored.get("whole", False)),
        )

    @classmethod
    def of_json(cls, stored: Mapping[str, Any], table_uuid: str, *, table: str) -> StreamOffset:
        """The offset in a checkpoint.

        Args:
            stored: The data in the checkpoint.
            table_uuid: The UUID of the table that the stream follows.
            table: The table's name, for messages.

        Raises:
            StreamError: If the checkpoint belongs to another table or another data source.
        """
        if stored.get("version") != _VERSION:
            raise StreamError(
                f"the checkpoint contains {dict(stored)} for {table}, which this version of "
                "icestream did not write: did another source write it? Start with a new "
                "checkpointLocation"
            )
        if stored["table"] != table_uuid:
            raise StreamError(
                f"the checkpoint belongs to another table: it has read table {stored['table']}, "
                f"and {table} is {table_uuid} (was it dropped and created again?). Start with a "
                "new checkpointLocation"
            )
        began = cls._of_place(stored["began"]) if "began" in stored else None
        is_initial = bool(stored.get("initial", False))
        return replace(cls._of_place(stored), is_initial=is_initial, began=began)
