"""How far a stream has read: what Spark stores in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from icestream.errors import StreamError

_VERSION = 1
_NO_SNAPSHOT = -1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A place in the history of a branch. Two that mean the same are equal.

    Attributes:
        snapshot_id: The snapshot that was read last; None before the first.
        files: If it was not read to its end: how many of its files were, in order of their paths.
        whole: Whether these are all files of the table at that snapshot, not only those that the
            snapshot has added: the start of a stream that reads what is there.
    """

    snapshot_id: int | None
    files: int | None = None
    whole: bool = False

    def to_json(self, table_uuid: str) -> dict[str, Any]:
        """What Spark keeps."""
        stored: dict[str, Any] = {
            "version": _VERSION,
            "table": table_uuid,
            "snapshot": _NO_SNAPSHOT if self.snapshot_id is None else self.snapshot_id,
        }
        if self.files is not None:
            stored |= {"files": self.files, "whole": self.whole}
        return stored

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
        snapshot_id = int(stored["snapshot"])
        return cls(
            None if snapshot_id == _NO_SNAPSHOT else snapshot_id,
            stored.get("files"),
            bool(stored.get("whole", False)),
        )
