"""Cutting whole-file splits at row groups."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata

from icestream.errors import InvalidArgumentError
from icestream.memory import parse_bytes
from icestream.read.files import RetryPolicy, open_file, retrying
from icestream.read.footer import read_footer
from icestream.read.split import Split

_TARGET_PROPERTY = "read.split.target-size"
_DEFAULT_TARGET_BYTES = 128 << 20
_FOOTER_THREADS = 8


def cut(
    splits: list[Split],
    target_bytes: int | str | None,
    metadata: TableMetadata | None,
    policy: RetryPolicy,
) -> list[Split]:
    """Cut Parquet files larger than the target at row groups; the rest stays whole.

    Only the footers of files that are to be cut are read. ORC files stay whole: their stripes can't
    be read apart without holding one of them decoded.
    """
    target = _target(target_bytes, metadata)
    large = [
        s for s in splits if s.format == "parquet" and s.row_groups is None and s.bytes > target
    ]
    if not large:
        return list(splits)
    with ThreadPoolExecutor(_FOOTER_THREADS, thread_name_prefix="icestream-footer") as pool:
        parts = dict(
            zip(map(id, large), pool.map(lambda s: _cut(s, target, policy), large), strict=True)
        )
    return [part for split in splits for part in parts.get(id(split), [split])]


def _target(target_bytes: int | str | None, metadata: TableMetadata | None) -> int:
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

    metadata = retrying(footer, path=split.path, policy=policy, split=split.id)
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
