"""Manifests that a change writes again: read block by block, and never shorter than they were."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from icestream.commit.change import Change
from icestream.commit.snapshot.producer import Producer
from tests.support.many_files import add_many_files, wide_rows


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Three data files, all of them in one manifest."""
    rows = pa.table({"id": pa.array(range(30), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    files = [
        file for first in (0, 10, 20) for file in ice.write_files(table, rows.slice(first, 10))
    ]
    ice.commit_files(table, files)
    assert len(files) == 3
    return table


def _cut_off_last_block(table: Table) -> None:
    """Leave all blocks of the newest manifest but the last: a valid Avro file with fewer files."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    path = Path(manifest.manifest_path.removeprefix("file://"))
    content = path.read_bytes()
    marker = content[-16:]
    path.write_bytes(content[: content.rindex(marker, 0, -16) + 16])


def test_a_manifest_that_lost_its_last_block_is_not_read_as_a_shorter_one(table: Table) -> None:
    _cut_off_last_block(table)
    with pytest.raises(ice.CorruptFileError, match=r"bytes instead of"):
        list(ice.scan(table))


def test_a_change_does_not_drop_files_that_a_damaged_manifest_lost(table: Table) -> None:
    (first, *_) = table.scan().plan_files()
    _cut_off_last_block(table)
    with pytest.raises(ice.CorruptFileError, match=r"bytes instead of"):
        _remove(table, first.file)


def test_writing_a_large_manifest_again_holds_little_of_it(catalog: Catalog) -> None:
    rows = wide_rows(50)
    table = catalog.create_table("db.wide", rows.schema, properties={"format-version": "2"})
    ice.append(table, rows)
    table = add_many_files(table, 600, per_manifest=600, linked=False)
    first, *_ = table.scan().plan_files()
    gone = first.file
    del first, _
    gc.collect()
    tracemalloc.start()
    try:
        _remove(table, gone)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6_000_000  # a list of its entries would hold 7.6 MB


def _remove(table: Table, file: DataFile) -> None:
    """Write the metadata of a snapshot without the file; it is not committed."""
    change = Change(Operation.DELETE, removed=(file,))
    Producer(change, table.metadata, table.io, 1, table="db.t").produce()
