"""Deleted positions: from position delete files and deletion vectors, inside the budget.

A delete file is read when the first split that needs it is. Small ones are kept, by data file,
until the scan ends or the room is needed; large ones are streamed again for each data file, so that
only the positions of files being read are ever held.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata
from pyroaring import BitMap

from icestream.errors import MemoryBudgetError
from icestream.memory import Lease, MemoryBudget, format_bytes
from icestream.read.files import RetryPolicy, open_file, retrying
from icestream.read.footer import read_footer
from icestream.read.split import DeleteFile, Split

Positions = npt.NDArray[np.int64]
T = TypeVar("T")

_NONE: Positions = np.empty(0, dtype=np.int64)
_BATCH_ROWS = 65_536


class DeletedPositions:
    """Sorted positions that are deleted from each data file, read on demand.

    Memory: what is kept is on lease from the budget, at most a quarter of it.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        policy: RetryPolicy,
        stopped: threading.Event,
        on_retry: Callable[[], None],
    ) -> None:
        self._budget = budget
        self._policy = policy
        self._stopped = stopped
        self._on_retry = on_retry
        self._kept: OrderedDict[str, tuple[dict[str, Positions], Lease]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, split: Split) -> Positions:
        """The deleted positions of a split's data file, sorted, without repeats."""
        found = [self._from(delete, split) for delete in split.deletes]
        found = [positions for positions in found if len(positions)]
        if not found:
            return _NONE
        return np.unique(np.concatenate(found)) if len(found) > 1 else found[0]

    def charge(self, positions: Positions) -> Lease:
        """Put positions that a file being read holds on the account.

        Raises:
            MemoryBudgetError: If they alone are more than the limit.
        """
        if positions.nbytes > self._budget.limit_bytes:
            raise MemoryBudgetError(
                f"the deleted positions of one file take {format_bytes(positions.nbytes)} and the "
                f"limit is {format_bytes(self._budget.limit_bytes)}: raise memory, or rewrite the "
                "file without its deleted rows",
                needed_bytes=2 * positions.nbytes,
                limit_bytes=self._budget.limit_bytes,
            )
        return self._budget.force(positions.nbytes)

    def close(self) -> None:
        """Drop everything kept."""
        with self._lock:
            for _, lease in self._kept.values():
                lease.release()
            self._kept.clear()

    def _from(self, delete: DeleteFile, split: Split) -> Positions:
        io, path = split.context.io, split.path
        if delete.format == "puffin":
            return self._retrying(lambda: _read_vector(io, delete, path), delete, split)
        decoded_bytes = 16 * delete.records
        if decoded_bytes > self._budget.limit_bytes // 8:
            return self._retrying(lambda: _read_for(io, delete, path), delete, split)
        with self._lock:  # one reader: the splits that wait are likely to need the same file
            if delete.path in self._kept:
                self._kept.move_to_end(delete.path)
                return self._kept[delete.path][0].get(path, _NONE)
            by_file = self._retrying(lambda: _read_all(io, delete), delete, split)
            size = sum(p.nbytes for p in by_file.values())
            if len(by_file) > 1:
                self._make_room(size)
                self._kept[delete.path] = (by_file, self._budget.force(size))
            return by_file.get(path, _NONE)

    def _make_room(self, size: int) -> None:
        held = sum(lease.held_bytes for _, lease in self._kept.values())
        while self._kept and held + size > self._budget.limit_bytes // 4:
            _, (_, lease) = self._kept.popitem(last=False)
            held -= lease.held_bytes
            lease.release()

    def _retrying(self, action: Callable[[], T], delete: DeleteFile, split: Split) -> T:
        return retrying(
            action,
            path=delete.path,
            policy=self._policy,
            split=split.id,
            stopped=self._stopped,
            on_retry=self._on_retry,
        )


def _read_all(io: FileIO, delete: DeleteFile) -> dict[str, Positions]:
    """Every position of a delete file, by data file."""
    parts: dict[str, list[Positions]] = {}
    for paths, positions in _batches(io, delete):
        for code, path in enumerate(paths.dictionary.to_pylist()):
            chosen = positions[_codes(paths) == code]
            if len(chosen):
                parts.setdefault(path, []).append(chosen)
    return {path: np.unique(np.concatenate(found)) for path, found in parts.items()}


def _read_for(io: FileIO, delete: DeleteFile, path: str) -> Positions:
    """The positions of one data file, streamed out of a large delete file."""
    found: list[Positions] = []
    for paths, positions in _batches(io, delete, only=path):
        codes = pc.index_in(pa.array([path]), value_set=paths.dictionary.cast(pa.string()))[0]
        if codes.is_valid:
            found.append(positions[_codes(paths) == codes.as_py()])
    return np.unique(np.concatenate(found)) if found else _NONE


def _codes(paths: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    codes: npt.NDArray[np.int32] = paths.indices.to_numpy(zero_copy_only=False)
    return codes


def _batches(
    io: FileIO, delete: DeleteFile, only: str | None = None
) -> Iterator[tuple[pa.DictionaryArray, Positions]]:
    with open_file(io, delete.path) as handle:
        raw = _parquet(handle, only) if delete.format == "parquet" else _orc(handle)
        for batch in raw:
            paths = batch.column("file_path")
            if not isinstance(paths, pa.DictionaryArray):
                paths = paths.dictionary_encode()
            yield paths, batch.column("pos").cast(pa.int64()).to_numpy(zero_copy_only=False)


def _parquet(handle: pa.NativeFile, only: str | None) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(
        handle,
        metadata=read_footer(handle).metadata,
        buffer_size=1 << 18,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=["file_path"],
    )
    groups = [
        group
        for group in range(file.num_row_groups)
        if only is None or _might_hold(file.metadata.row_group(group), only)
    ]
    left = sum(file.metadata.row_group(group).num_rows for group in groups)
    if groups:
        for batch in file.iter_batches(
            _BATCH_ROWS, groups, ["file_path", "pos"], use_threads=False
        ):
            left -= batch.num_rows
            yield batch
    if left:  # Arrow passes over pages of a kind that it does not know.
        raise ValueError(f"the file ended {left} rows early")


def _might_hold(group: pq.RowGroupMetaData, path: str) -> bool:
    for position in range(group.num_columns):
        column = group.column(position)
        if column.path_in_schema == "file_path":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            low, high = statistics.min, statistics.max
            as_text = [v.decode() if isinstance(v, bytes) else v for v in (low, high)]
            return bool(as_text[0] <= path <= as_text[1])
    return True


def _orc(handle: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    fragment = ds.OrcFileFormat().make_fragment(handle)
    scanner = ds.Scanner.from_fragment(
        fragment,
        columns=["file_path", "pos"],
        batch_size=_BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )
    yield from scanner.to_batches()


def _read_vector(io: FileIO, delete: DeleteFile, path: str) -> Positions:
    """The deletion vector of a data file: only its own bytes are read.

    PyIceberg 0.12 drops where in the Puffin file a vector is, so the footer is asked. A replaced
    vector may still be in the file; a newer one holds its positions too, so that taking all of them
    is right.
    """
    with open_file(io, delete.path) as handle:
        if delete.offset is not None and delete.length is not None:
            return _decode_vector(handle.read_at(delete.length, delete.offset))
        found = [
            _decode_vector(_blob(handle, blob))
            for blob in _puffin_footer(handle)
            if blob.properties.get("referenced-data-file") == path
        ]
    return np.unique(np.concatenate(found)) if found else _NONE


def _puffin_footer(handle: pa.NativeFile) -> list[PuffinBlobMetadata]:
    size = handle.size()
    tail = handle.read_at(12, max(size - 12, 0))
    if len(tail) < 12 or tail[8:] != MAGIC_BYTES:
        raise ValueError("not a Puffin file: it does not end with the magic bytes")
    if tail[4] != 0:
        raise ValueError("the Puffin file has a compressed footer, which is not supported")
    length = int.from_bytes(tail[:4], "little")
    footer: list[PuffinBlobMetadata] = Footer.model_validate_json(
        handle.read_at(length, size - 12 - length)
    ).blobs
    return footer


def _blob(handle: pa.NativeFile, blob: PuffinBlobMetadata) -> bytes:
    raw: bytes = handle.read_at(blob.length, blob.offset)
    if blob.compression_codec is None:
        return raw
    if blob.compression_codec == "zstd":
        return bytes(pa.input_stream(pa.py_buffer(raw), compression="zstd").read())
    raise ValueError(f"deletion vector compressed with {blob.compression_codec}")


def _decode_vector(blob: bytes) -> Positions:
    """Decode `deletion-vector-v1`: length, magic, 64-bit roaring bitmap, checksum."""
    length = int.from_bytes(blob[:4], "big")
    if blob[4:8] != b"\xd1\xd3\x39\x64" or len(blob) < length + 8:
        raise ValueError("not a deletion vector: wrong magic number or length")
    checksum = int.from_bytes(blob[4 + length : 8 + length], "big")
    if zlib.crc32(memoryview(blob)[4 : 4 + length]) != checksum:
        raise ValueError("the deletion vector is damaged: its checksum is another")
    data = memoryview(blob)[8 : 4 + length]
    count = int.from_bytes(data[:8], "little")
    data = data[8:]
    parts: list[Positions] = []
    for remaining in range(count, 0, -1):
        key = int.from_bytes(data[:4], "little")
        bitmap = BitMap.deserialize(bytes(data[4:]))
        low = np.frombuffer(bitmap.to_array(), dtype=np.uint32).astype(np.int64)
        parts.append((np.int64(key) << 32) + low)
        if remaining > 1:
            data = data[4 + len(bitmap.serialize()) :]
    return np.concatenate(parts) if parts else _NONE


def keep_mask(deleted: Positions, first: int, count: int) -> pa.Array | None:
    """Which of `count` rows from position `first` on are kept; None when all are."""
    start, end = np.searchsorted(deleted, (first, first + count))
    if start == end:
        return None
    keep = np.ones(count, dtype=bool)
    keep[deleted[start:end] - first] = False
    return pa.array(keep)
