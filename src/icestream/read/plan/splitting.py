"""Cut whole-file splits at row groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata

from icestream.errors import InvalidArgumentError
from icestream.memory.budget import parse_bytes
from icestream.read.decode.files import RetryPolicy, open_file, retrying
from icestream.read.decode.footer import read_footer
from icestream.read.split import Split

_TARGET_PROPERTY = "read.split.target-size"
_DEFAULT_TARGET_BYTES = 128 << 20
_FOOTER_THREADS = 8


def cut(splits: Iterable[Split], target: int, policy: RetryPolicy) -> Iterator[Split]:
    """Cut Parquet files that are larger than the target at row groups.

    Reads only the footers of the files to cut, several at a time. ORC files are not cut, because
    reading single stripes would hold a whole decoded stripe in memory.
    """
    pool = ThreadPoolExecutor(_FOOTER_THREADS, thread_name_prefix="icestream-footer")
    coming: deque[Split | Future[list[Split]]] = deque()
    try:
        for split in splits:
            if split.format != "parquet" or split.row_groups is not None or split.bytes <= target:
                coming.append(split)
            else:
                coming.append(pool.submit(_cut, split, target, policy))
            while coming and (isinstance(coming[0], Split) or len(coming) > _FOOTER_THREADS):
                yield from _parts(coming.popleft())
        while coming:
            yield from _parts(coming.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def grouped(
    splits: list[Split], files_per_split: int, target_bytes: object
) -> list[tuple[Split, ...]]:
    """Whole files in groups of `files_per_split`, the last of which may be smaller.

    Raises:
        InvalidArgumentError: If it is not a positive number, or files are to be cut as well.
    """
    if target_bytes is not None:
        raise InvalidArgumentError(
            "give target_bytes, which cuts files, or files_per_split, which groups them"
        )
    if (
        isinstance(files_per_split, bool)
        or not isinstance(files_per_split, int)
        or files_per_split < 1
    ):
        raise InvalidArgumentError(
            f"files_per_split is {files_per_split!r}: give a whole number of files, 1 or more"
        )
    starts = range(0, len(splits), files_per_split)
    return [tuple(splits[start : start + files_per_split]) for start in starts]


def _parts(split: Split | Future[list[Split]]) -> list[Split]:
    return [split] if isinstance(split, Split) else split.result()


def target_of(target_bytes: int | str | None, metadata: TableMetadata | None) -> int:
    """The target size: the argument, the table's property, or 128 MiB."""
    if target_bytes is not None:
        return parse_bytes(target_bytes, name="target_bytes")
    text = metadata.properties.get(_TARGET_PROPERTY) if metadata else None
    if text is None:
        return _DEFAULT_TARGET_BYTES
    try:
        return parse_bytes(int(text), name=_TARGET_PROPERTY)
    except ValueError as error:
        raise InvalidArgumentError(
            f"the table property {_TARGET_PROPERTY} is {text!r}: it must be a number of bytes"
        ) from error


def _cut(split: Split, target: int, policy: RetryPolicy) -> list[Split]:
    def footer() -> pq.FileMetaData:
        handle: pa.NativeFile
        with open_file(split.context.io, split.path) as handle:
            return read_footer(handle).metadata

    metadata = retrying(footer, path=split.path, policy=policy, split=split.id, io=split.context.io)
    parts: list[Split] = []
    groups: list[int] = []
    rows = size = 0

    def finish() -> None:
        nonlocal groups, rows, size
        if groups:
            parts.append(replace(split, row_groups=tuple(groups), rows=rows, bytes=size))
        groups, rows, size = [], 0, 0

    for position in range(metadata.num_row_groups):
        group = metadata.row_group(position)
        group_bytes = sum(group.column(c).total_compressed_size for c in range(group.num_columns))
        if groups and size + group_bytes > target:
            finish()
        groups.append(position)
        rows += group.num_rows
        size += group_bytes
    finish()
    return parts if len(parts) > 1 else [split]
