"""Tasks that list folders and delete files. The driver decides which files are orphans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io import FileIO

from icestream.operations.upkeep.folder import Folder, Storage, StoredFile, delete_stored
from icestream.spark.setup.installed import runs_here
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.packing import wanted_tasks
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.task_notes import driver_error, note_base, note_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_SCHEMA = "relative binary, bytes bigint, modified_ms bigint, identity string"
_FILES = pa.schema(
    [
        ("relative", pa.binary()),
        ("bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("identity", pa.string()),
    ]
)
_LEFT_SCHEMA = "relative binary"
_ROWS_PER_BATCH = 10_000
_SHARES_PER_TASK = 4
_MOST_DEPTH = 4
_FEW_FILES = 200  # Deleting these in this process takes less time than a job.
_FILES_PER_SHARE = 500


class SparkStorage(Storage):
    """Lists folders and deletes files in tasks.

    A folder on a local disk is not the same on every machine, so tasks only see it if they run on
    this machine. Otherwise this process lists it.

    Args:
        spark: A session, classic or Spark Connect.
        io: The table's file access.
    """

    def __init__(self, spark: SparkSession, io: FileIO) -> None:
        self._spark = spark
        self._io = io
        self._tasks = wanted_tasks(cores_of(spark))
        self._is_here = runs_here(spark)

    def files(self, folder: Folder) -> Iterator[StoredFile]:
        """All files below a folder.

        Memory: this process holds the names that one task has listed.
        """
        if folder.is_local and not self._is_here:
            yield from folder.files()
            return
        tops, below = self._divided(folder)
        for top in tops:
            yield from folder.files(recursive=False, below=top)
        if below:
            yield from self._listed(folder, below)

    def delete(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Delete files; return those that could not be deleted.

        If the job fails, this process tries again: files that are gone count as deleted.
        """
        here = [f for f in files if f.folder.is_local and not self._is_here]
        there = [f for f in files if not f.folder.is_local or self._is_here]
        if len(there) < _FEW_FILES:
            return delete_stored(files)
        left = delete_stored(here)
        for folder in {id(file.folder): file.folder for file in there}.values():
            left += self._deleted(folder, [file for file in there if file.folder is folder])
        return left

    def _divided(self, folder: Folder) -> tuple[list[str], list[str]]:
        """Folders to list here, without those below them, and folders for tasks to list whole."""
        tops: list[str] = []
        waiting = [""]
        for _ in range(_MOST_DEPTH):
            if len(waiting) >= self._tasks * _SHARES_PER_TASK:
                break
            tops += waiting
            waiting = [below for top in waiting for below in folder.folders(top)]
        return tops, waiting

    def _listed(self, folder: Folder, below: list[str]) -> Iterator[StoredFile]:
        step = -(-len(below) // (self._tasks * _SHARES_PER_TASK))
        runs = [below[start : start + step] for start in range(0, len(below), step)]
        shares = [json.dumps(run).encode() for run in runs]
        work = _Listing(self._io, folder.location)
        # Kept, because `toLocalIterator` runs the tasks one after the other.
        listing = map_shares(self._spark, shares, work, _FILES_SCHEMA).persist()
        try:
            listing.count()
            for name, size, modified_ms, identity in listing.toLocalIterator():
                relative = _name(name)
                key = folder.key_of(relative)
                yield StoredFile(folder, relative, key, size, modified_ms, identity)
        except Exception as error:
            shown = driver_error(error, what=f"listing {folder.location}")
            if shown is error:
                raise
            raise shown from error
        finally:
            listing.unpersist()

    def _deleted(self, folder: Folder, files: list[StoredFile]) -> list[StoredFile]:
        described = [(f.relative, f.size_bytes, f.modified_ms, f.identity) for f in files]
        starts = range(0, len(files), _FILES_PER_SHARE)
        shares = [json.dumps(described[n : n + _FILES_PER_SHARE]).encode() for n in starts]
        work = _Deletion(self._io, folder.location)
        try:
            rows = map_shares(self._spark, shares, work, _LEFT_SCHEMA).collect()
        except Exception:
            return delete_stored(files)
        left = {_name(row[0]) for row in rows}
        return [file for file in files if file.relative in left]


@dataclass(frozen=True, slots=True)
class _Listing:
    """In a task: lists some folders below a folder, with everything in them."""

    io: FileIO
    location: str

    def __call__(self, number: int, share: bytes) -> Iterator[pa.RecordBatch]:
        note_base()
        with note_error():
            folder = Folder(self.io, self.location)
            rows: list[tuple[Any, ...]] = []
            for below in json.loads(share):
                for f in folder.files(below=below):
                    rows.append((_bytes(f.relative), f.size_bytes, f.modified_ms, f.identity))
                    if len(rows) >= _ROWS_PER_BATCH:
                        yield _batch(rows)
                        rows = []
            yield _batch(rows)


@dataclass(frozen=True, slots=True)
class _Deletion:
    """In a task: deletes some files below a folder, and returns those that remain."""

    io: FileIO
    location: str

    def __call__(self, number: int, share: bytes) -> Iterator[pa.RecordBatch]:
        note_base()
        with note_error():
            folder = Folder(self.io, self.location)
            files = [
                StoredFile(folder, relative, folder.key_of(relative), size, modified_ms, identity)
                for relative, size, modified_ms, identity in json.loads(share)
            ]
            left = [_bytes(file.relative) for file in delete_stored(files)]
        yield pa.RecordBatch.from_pydict({"relative": pa.array(left, pa.binary())})


def _bytes(relative: str) -> bytes:
    """A path as bytes. Names on a local disk may not be valid UTF-8, so they do not fit text."""
    return relative.encode("utf-8", "surrogateescape")


def _name(relative: bytes) -> str:
    return bytes(relative).decode("utf-8", "surrogateescape")


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(_FILES)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, _FILES, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_FILES)
