"""Files that may be orphans, kept on disk until that is decided."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from icestream.errors import CatalogError
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.folder import Folder, StoredFile

CHUNK_FILES = 5_000
_IN_MEMORY_BYTES = 1 << 20
_FILE_BYTES = 600


class Candidates:
    """A list of files of any length, which can be read repeatedly.

    Memory: 5,000 files, and 1 MB.

    Args:
        folders: The folders that the files are in.
        budget: The budget that the files are charged to.
    """

    def __init__(self, folders: Sequence[Folder], budget: MemoryBudget) -> None:
        self._folders = list(folders)
        self._lease = budget.force(_IN_MEMORY_BYTES + CHUNK_FILES * _FILE_BYTES)
        self._file: Any = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            max_size=_IN_MEMORY_BYTES, prefix="icestream-files-"
        )
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, files: Sequence[StoredFile]) -> None:
        """Append files."""
        rows = [
            (self._folders.index(f.folder), f.relative, f.size_bytes, f.modified_ms, f.identity)
            for f in files
        ]
        self._count += len(rows)
        try:
            self._file.write(json.dumps(rows).encode() + b"\n")
        except OSError as error:
            raise CatalogError(
                f"file names could not be written to {tempfile.gettempdir()}: {error}. Free some "
                "space, or set TMPDIR to another directory"
            ) from error

    def chunks(self) -> Iterator[list[StoredFile]]:
        """All files, in chunks of some thousands."""
        self._file.seek(0)
        while line := self._file.readline():
            yield [self._restored(*row) for row in json.loads(line)]

    def close(self) -> None:
        """Drop everything."""
        self._file.close()
        self._lease.release()

    def _restored(
        self, folder: int, relative: str, size: int, modified_ms: int | None, identity: str | None
    ) -> StoredFile:
        where = self._folders[folder]
        return StoredFile(where, relative, where.key_of(relative), size, modified_ms, identity)
