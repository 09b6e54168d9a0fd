"""How far a stream has read: what Spark stores in a checkpoint.

Spark stores where a micro-batch ends, and takes the end of the one before for its start. The first
has none before: Spark asks for the start again whenever it wants it, also to run the micro-batch
again after a crash, when "now" is another time. So the end of the first micro-batch holds its
start, which wins over what is told later.
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
    """A place in the history of a branch. Two that mean the same place are equal.

    Attributes:
        snapshot_id: The snapshot that was read last; None before the first.
        files: If it was not read to its end: how many of its files were, in order of their paths.
        whole: Whether these are all files of the table at that snapshot, not only those that the
            snapshot has added: the start of a stream that reads what is there.
        is_initial: Whether this is where a stream starts, as of the time of asking.
        began: Of the end of the first micro-batch: where the stream has started.
    """

    snapshot_id: int | None
    files: int | None = None
    whole: bool = False
    is_initial: bool = field(default=False, compare=False)
    began: StreamOffset | None = field(default=None, compare=False)

    def start_of(self, start: StreamOffset) -> StreamOffset:
        """Where the micro-batch starts that ends here, when Spark says that it is `start`."""
        if not start.is_initial:
            return start
        if self.is_initial:  # nothing was there to be read
            return self
        return self.began or start

    def to_json(self, table_uuid: str) -> dict[str, Any]:
        """What Spark keeps."""
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
        """What Spark has kept.

        Args:
            stored: From a checkpoint.
            table_uuid: Of the table that is followed.
            table: Its name, for messages.

        Raises:
            StreamError: If it is of another table, or was not written by icestream.
        """
        if stored.get("version") != _VERSION:
            raise StreamError(
                f"the checkpoint holds {dict(stored)} for {table}, which this version of icestream "
                "did not write: was it made by another source? Start with a new checkpointLocation"
            )
        if stored["table"] != table_uuid:
            raise StreamError(
                f"the checkpoint is of another table: it has read table {stored['table']}, and "
                f"{table} is {table_uuid} (was it dropped and created again?). Start with a new "
                "checkpointLocation"
            )
        began = cls._of_place(stored["began"]) if "began" in stored else None
        is_initial = bool(stored.get("initial", False))
        return replace(cls._of_place(stored), is_initial=is_initial, began=began)
