"""What a merge did to the files that it matched."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyiceberg.manifest import DataFile

from icestream.upsert.row_change import Changed


@dataclass(slots=True)
class Applied:
    """What was done to the files with matches.

    Attributes:
        removed: Files that were written again.
        deleted_from: Files that lost rows by position.
        updated: Rows with new values.
        deleted: Rows that are gone.
        unchanged: Rows that were as they were to be.
        written: Rows written, old and new ones.
    """

    removed: list[DataFile] = field(default_factory=list)
    deleted_from: list[DataFile] = field(default_factory=list)
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    written: int = 0

    def count(self, changed: Changed) -> None:
        """Count rows that were looked at."""
        self.deleted += int(np.count_nonzero(changed.is_deleted))
        self.updated += int(np.count_nonzero(changed.is_updated))
        self.unchanged += int(np.count_nonzero(~changed.is_changed))
