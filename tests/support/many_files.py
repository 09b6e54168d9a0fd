"""Tables of very many files, made in seconds: manifests name a few real files again and again.

Each entry has its own path, a hard link to a real file or none at all, and its own statistics.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from tests.support.manifests import DeleteManifestWriterV2

_PATH_FIELD_ID = 2147483546
_LINKS = 10_000


def add_many_files(
    table: Table,
    count: int,
    *,
    per_manifest: int = 4_000,
    position_deletes: int = 0,
    deletes_of_one_file: bool = True,
    linked: bool = True,
) -> Table:
    """Make a snapshot of `count` data files, all with the rows of the table's only file.

    Args:
        table: A table of format version 2, unpartitioned, with one data file.
        count: How many data files.
        per_manifest: How many of them a manifest names.
        position_deletes: How many position delete files there are; none of them exists.
        deletes_of_one_file: Whether each names its data file by bounds; else it is for any.
        linked: Whether each path is a file, linked to the real one.
    """
    (task,) = table.scan().plan_files()
    base = task.file.file_path.removeprefix("file://")
    folder = Path(base).parent
    snapshot_id = table.metadata.new_snapshot_id()
    sequence = table.metadata.last_sequence_number + 1
    paths = [f"file://{folder}/{number:06d}-{uuid.uuid4()}.parquet" for number in range(count)]
    for number, path in enumerate(paths if linked else ()):
        if number % _LINKS == 0:  # File systems limit how many links a file has.
            base = shutil.copy(base, f"{folder}/{number:06d}-base.parquet")
        os.link(base, path.removeprefix("file://"))
    manifests = []
    for first in range(0, count, per_manifest):
        part = range(first, min(first + per_manifest, count))
        files = (_data_file(table, task.file, paths[n], n) for n in part)
        manifests.append(_manifest(table, ManifestWriterV2, files, snapshot_id))
    for first in range(0, position_deletes, per_manifest):
        part = range(first, min(first + per_manifest, position_deletes))
        deletes = (
            _delete_file(folder, n, paths[n % count] if deletes_of_one_file else None) for n in part
        )
        manifests.append(_manifest(table, DeleteManifestWriterV2, deletes, snapshot_id))
    _commit(table, manifests, snapshot_id, sequence)
    return table


def _data_file(table: Table, like: DataFile, path: str, number: int) -> DataFile:
    ids = [field.field_id for field in table.schema().fields]
    lower = {i: to_bytes(LongType(), 1_000_000_007 * number + i) for i in ids}
    upper = {i: to_bytes(LongType(), 1_000_000_007 * number + 1_000_000_000 + i) for i in ids}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=like.record_count,
        file_size_in_bytes=like.file_size_in_bytes,
        column_sizes={i: 300 + (number + 7 * i) % 5_000 for i in ids},
        value_counts=dict.fromkeys(ids, like.record_count),
        null_value_counts=dict.fromkeys(ids, 0),
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=[4],
        sort_order_id=0,
    )
    file.spec_id = 0
    return file


def _delete_file(folder: Path, number: int, data_path: str | None) -> DataFile:
    bounds = None if data_path is None else {_PATH_FIELD_ID: data_path.encode()}
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{folder}/{number:07d}-{uuid.uuid4()}-deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1_000,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    file.spec_id = 0
    return file


def _manifest(
    table: Table, writer_class: type[ManifestWriterV2], files: Iterator[DataFile], snapshot_id: int
) -> ManifestFile:
    location = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
    output = table.io.new_output(location)
    with writer_class(table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
        for file in files:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file
                )
            )
    return writer.to_manifest_file()


def _commit(table: Table, manifests: list[ManifestFile], snapshot_id: int, sequence: int) -> None:
    location = f"{table.location()}/metadata/snap-{snapshot_id}-{uuid.uuid4()}.avro"
    parent = table.metadata.current_snapshot_id
    output = table.io.new_output(location)
    with write_manifest_list(2, output, snapshot_id, parent, sequence, "deflate") as writer:
        writer.add_manifests(manifests)
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        sequence_number=sequence,
        timestamp_ms=int(time.time() * 1000),
        manifest_list=location,
        summary=Summary(Operation.APPEND),
        schema_id=table.schema().schema_id,
    )
    ref = SetSnapshotRefUpdate(
        ref_name="main", type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id
    )
    table.catalog.commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), ref))
    table.refresh()


def wide_rows(columns: int, rows: int = 4) -> pa.Table:
    """Rows of so many columns of whole numbers, `c0` and on."""
    return pa.table({f"c{n}": pa.array(range(rows), pa.int64()) for n in range(columns)})
