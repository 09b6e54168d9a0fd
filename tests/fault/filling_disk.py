"""A disk for temporary files that fills up while rows are spilled to it.

The files are real. A write that does not fit ends as it does in the kernel: it stores the bytes
that fit, and the next one fails.
"""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from icestream.write.spill.run_file import RunFile


class FillingDisk:
    """Has room for some bytes of the rows that fill it, and for all others until then.

    Args:
        fills: Which rows, by their schema.
        room_bytes: How many bytes of them.
        when_full: Called once, before the first write is refused.

    Attributes:
        taken_bytes: What they have taken.
        is_full: Whether a write was refused; from then on all are.
        open_files: Files that were not closed.
    """

    def __init__(
        self,
        fills: Callable[[pa.Schema], bool],
        room_bytes: int,
        when_full: Callable[[], object] = lambda: None,
    ) -> None:
        self.taken_bytes = 0
        self.is_full = False
        self.open_files = 0
        self._fills = fills
        self._room_bytes = room_bytes
        self._when_full = when_full
        self._counts = False

    @contextmanager
    def used(self) -> Iterator[FillingDisk]:
        """Spill to it while the context is open."""
        with (
            mock.patch("icestream.write.spill.spill.RunFile", self._run_file),
            mock.patch(
                "icestream.write.spill.run_file.tempfile", mock.Mock(TemporaryFile=self._open)
            ),
        ):
            yield self

    def take(self, wanted_bytes: int, *, counts: bool) -> int:
        """How many bytes may be written, at least one.

        Raises:
            OSError: If there is no room.
        """
        if counts and not self.is_full:
            wanted_bytes = min(wanted_bytes, self._room_bytes - self.taken_bytes)
            self.taken_bytes += wanted_bytes
            if wanted_bytes == 0:
                self.is_full = True
                self._when_full()
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return wanted_bytes

    def _run_file(self, schema: pa.Schema, directory: str) -> RunFile:
        self._counts = self._fills(schema)
        return RunFile(schema, directory)

    def _open(self, *, dir: str, buffering: int) -> Any:
        with tempfile.TemporaryFile(dir=dir, buffering=0) as file:
            return io.BufferedRandom(_File(self, os.dup(file.fileno()), self._counts), buffering)


class _File(io.FileIO):
    def __init__(self, disk: FillingDisk, descriptor: int, counts: bool) -> None:
        super().__init__(descriptor, "rb+")
        self._disk = disk
        self._counts = counts
        disk.open_files += 1

    def write(self, data: Any) -> int:
        return super().write(memoryview(data)[: self._disk.take(len(data), counts=self._counts)])

    def close(self) -> None:
        if not self.closed:
            self._disk.open_files -= 1
        super().close()
