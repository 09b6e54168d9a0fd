"""Tasks that read the data manifests of large tables. The driver applies the delete files.

The tasks select files by partition and statistics, and return them in the order of the manifests.
A manifest takes long to decode because of its statistics, and most plans need few of these.
"""

from __future__ import annotations

import json
import logging
import threading
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile

from icestream.catalogs.credentials import credentials_of, renew_if_near, renewed_after
from icestream.errors import CredentialsExpiredError, TaskFailedError
from icestream.memory.budget import MemoryBudget
from icestream.read.decode.files import RetryPolicy, is_remote
from icestream.read.plan.found_files import (
    FileFilter,
    FileTest,
    FoundFile,
    Statistics,
    find_files,
)
from icestream.read.plan.manifests import MetadataFiles
from icestream.spark.setup.installed import runs_here
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.manifest_answer import decoded_files, encoded_files
from icestream.spark.tasks.packing import pack, wanted_tasks
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.shown_work import described_jobs
from icestream.spark.tasks.task_notes import driver_error, note_base, note_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# With less or fewer, a job takes about as long as reading the manifests here: 24 MB are 50,000
# files of 20 columns, which take 1 s to decode. Opening a manifest counts as 32 kB.
_LEAST_BYTES = 24 << 20
_OPENING_BYTES = 32 << 10
_FEWEST_CORES = 4
_WAVE_SHARE = 8  # An eighth of the limit is for the answers of one job.
_FILE_BYTES, _STATISTIC_BYTES = 64, 8  # in a compressed answer
_KINDS = 6  # of statistics
_ROWS = pa.schema([("number", pa.int32()), ("last", pa.bool_()), ("files", pa.binary())])
_SCHEMA = "number int, last boolean, files binary"
_log = logging.getLogger(__name__)


class SparkManifests:
    """Has tasks of Spark read data manifests: see `ManifestWorkers`.

    Few manifests are read in this process. So are manifests on a local disk, unless the tasks run
    on this machine.

    Args:
        spark: A session, classic or Spark Connect.
        memory_bytes: The memory limit of each task.
    """

    def __init__(self, spark: SparkSession, memory_bytes: int) -> None:
        self._spark = spark
        self._memory_bytes = memory_bytes

    def find(
        self,
        manifests: Iterator[ManifestFile],
        files: MetadataFiles,
        file_filter: FileFilter,
        statistics: Statistics,
    ) -> Generator[FoundFile]:
        """Find files, in the order of the manifests.

        Memory: the answers of a job, which count towards the budget. A job reads manifests whose
            answers are expected to take at most an eighth of the limit.

        Raises:
            FileMissingError: If a manifest does not exist.
            CorruptFileError: If a manifest is damaged.
            TaskFailedError: If tasks failed for reasons outside icestream.
        """
        first, are_enough = _first_of(manifests)
        if not are_enough or not self._are_faster(first):
            _log.debug("the manifests of %s are read in this process", files.table)
            yield from find_files(chain(first, manifests), files, FileTest(file_filter))
            return
        work = _Reading(
            files.io, files.table, files.policy, self._memory_bytes, file_filter, statistics
        )
        file_bytes = _FILE_BYTES + _STATISTIC_BYTES * _values(file_filter, statistics)
        most_bytes = files.budget.limit_bytes // _WAVE_SHARE
        has_bounds = bool(statistics.columns)
        waves = _waves(chain(first, manifests), file_bytes, most_bytes, has_bounds=has_bounds)
        for wave in waves:
            yield from self._found(wave, files, work)

    def _are_faster(self, manifests: Iterable[ManifestFile]) -> bool:
        """Whether tasks can read the manifests, and enough of them run at once."""
        visible = runs_here(self._spark) or all(is_remote(m.manifest_path) for m in manifests)
        return visible and cores_of(self._spark) >= _FEWEST_CORES

    def _found(
        self, wave: list[_Piece], files: MetadataFiles, work: _Reading
    ) -> Generator[FoundFile]:
        renew_if_near(files.io)
        used = credentials_of(files.io)
        try:
            answers = self._answers(wave, work)
        except CredentialsExpiredError as error:
            if not renewed_after(error, files.io, used, path=error.path):
                raise
            answers = self._answers(wave, work)
        lease = files.budget.force(sum(map(len, answers)))
        try:
            for number, answer in enumerate(answers):
                answers[number] = b""
                lease.resize(max(0, lease.held_bytes - len(answer)))
                yield from decoded_files(answer)
        finally:
            lease.release()

    def _answers(self, wave: list[_Piece], work: _Reading) -> list[bytes]:
        """The encoded files of each share, in the order of the manifests."""
        packed = pack(wave, tasks=wanted_tasks(cores_of(self._spark)))
        shares = [_encoded(pieces) for pieces in packed]
        what = f"plan a scan of {work.table}"
        _log.debug("%s manifests of %s are read in %s tasks", len(wave), work.table, len(shares))
        try:
            with described_jobs(self._spark, what):
                name = f"icestream {what}"
                rows = map_shares(self._spark, shares, work, _SCHEMA, name=name).collect()
        except Exception as error:
            shown = driver_error(error, what=what)
            if shown is error:
                raise
            raise shown from error
        numbers = [row[0] for row in rows]
        ends = [number for number, last, _ in rows if last]
        if numbers != sorted(numbers) or ends != list(range(len(shares))):
            raise TaskFailedError(f"{what} failed in Spark: some results are missing")
        return [bytes(files) for _, _, files in rows]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A manifest to read.

    Attributes:
        record: Its properties, as JSON.
        bytes: Its size.
    """

    record: str
    bytes: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """In a task: finds files in the manifests of its share. Plain data."""

    io: FileIO
    table: str
    policy: RetryPolicy
    memory_bytes: int
    file_filter: FileFilter
    statistics: Statistics

    def __call__(self, number: int, share: bytes) -> Iterator[pa.RecordBatch]:
        """For `map_shares`."""
        note_base()
        with note_error():
            budget = MemoryBudget(self.memory_bytes)
            files = MetadataFiles(self.io, self.table, budget, self.policy, threading.Event())
            entries = find_files(_manifests(share), files, FileTest(self.file_filter), at_once=8)
            with closing(entries):
                before: bytes | None = None
                for answer in encoded_files(entries, self.statistics):
                    if before is not None:
                        yield _row(number, False, before)
                    before = answer
        assert before is not None
        yield _row(number, True, before)


def _first_of(manifests: Iterator[ManifestFile]) -> tuple[list[ManifestFile], bool]:
    """Manifests up to the size that is enough for a job, and whether there are so many."""
    first: list[ManifestFile] = []
    size = 0
    for manifest in manifests:
        first.append(manifest)
        size += manifest.manifest_length + _OPENING_BYTES
        if size >= _LEAST_BYTES and len(first) > 1:
            return first, True
    return first, False


def _waves(
    manifests: Iterable[ManifestFile], file_bytes: int, most_bytes: int, *, has_bounds: bool
) -> Iterator[list[_Piece]]:
    """Manifests in runs, each for one job."""
    wave: list[_Piece] = []
    held = 0
    for manifest in manifests:
        record = json.dumps([_plain(manifest, name) for name in _FIELDS])
        wave.append(_Piece(record, manifest.manifest_length))
        held += len(record) + _answer_bytes(manifest, file_bytes, has_bounds)
        if held >= most_bytes:
            yield wave
            wave, held = [], 0
    if wave:
        yield wave


def _answer_bytes(manifest: ManifestFile, file_bytes: int, has_bounds: bool) -> int:
    """The expected size of the answer about a manifest.

    The manifest's own size counts if it does not say how many files it has, as in format version 1,
    and for bounds, which may be long texts.
    """
    counts = manifest.added_files_count, manifest.existing_files_count
    expected = file_bytes * sum(count or 0 for count in counts)
    if has_bounds or None in counts:
        return max(expected, manifest.manifest_length)
    return expected


def _values(file_filter: FileFilter, statistics: Statistics) -> int:
    """The number of statistics of a file."""
    sizes = len(file_filter.schema.field_ids) if statistics.column_sizes else 0
    return _KINDS * len(statistics.columns) + sizes


_FIELDS = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "sequence_number",
    "added_snapshot_id",
)


def _plain(manifest: ManifestFile, name: str) -> Any:
    return getattr(manifest, name)


def _encoded(pieces: Iterable[_Piece]) -> bytes:
    return zlib.compress(f"[{','.join(piece.record for piece in pieces)}]".encode(), 1)


def _manifests(share: bytes) -> Iterator[ManifestFile]:
    """In a task: the manifests of a share."""
    for values in json.loads(zlib.decompress(share)):
        known = dict(zip(_FIELDS, values, strict=True))
        yield ManifestFile.from_args(content=ManifestContent.DATA, **known)


def _row(number: int, last: bool, files: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{"number": number, "last": last, "files": files}], schema=_ROWS
    )
