"""Markers of writes under way: a marker of the version before has the same effect."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.in_flight import InFlightWrite, InFlightWrites
from icestream.operations.upkeep.orphans import delete_write
from icestream.write.target import WriteTarget
from tests.support.loads import listing, make_table
from tests.support.stored import folder_of, stored_files

_WRITE_ID = "5f0c2c57-6f0b-4a53-9e0e-3d3f5f3f9a11"
# As version 0.1 wrote it, apart from the location: a load that was to create the table.
_MARKER = """{"write-id": "5f0c2c57-6f0b-4a53-9e0e-3d3f5f3f9a11", \
"table-uuid": "9c9d0d5e-6a8c-4f0f-8a55-0d6f1f1f7c01", "table-location": "LOCATION", \
"operation": "append", "started-ms": 1747000000000, "renewed-ms": 1747003600000, \
"host": "etl-7", "pid": 4711}"""
_BEFORE_RENEWAL = datetime.fromtimestamp(1747003599, UTC)
_AFTER_RENEWAL = datetime.fromtimestamp(1747003601, UTC)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    rows = pa.table({"id": [1, 2]})
    table = catalog.create_table("db.t", rows.schema)
    ice.append(table, rows)
    return table


@pytest.fixture
def left(table: Table) -> set[str]:
    """The files of a write that the version before began: a data file and the marker."""
    folder = folder_of(table)
    data = folder / "data" / f"00000-0-{_WRITE_ID}-00000.parquet"
    data.write_bytes(b"PAR1 cut off")
    marker = folder / "metadata" / f"icestream-in-flight-{_WRITE_ID}.marker"
    marker.write_text(_MARKER.replace("LOCATION", table.location()))
    for path in (data, marker):
        os.utime(path, (1747000000, 1747000000))  # before the marker was renewed
    return {str(data), str(marker)}


def test_files_are_as_old_as_the_renewal_in_a_marker_of_the_version_before(
    table: Table, left: set[str]
) -> None:
    before = stored_files(folder_of(table))
    kept = ice.orphans(table, older_than=_BEFORE_RENEWAL, delete=True)
    assert (kept.count, kept.kept_young) == (0, 2)
    assert stored_files(folder_of(table)) == before
    assert ice.orphans(table, older_than=_AFTER_RENEWAL, delete=True).files_deleted == 2
    assert stored_files(folder_of(table)) == before - left


def test_a_write_of_the_version_before_is_deleted_with_its_marker(
    table: Table, left: set[str]
) -> None:
    before = stored_files(folder_of(table))
    delete_write(WriteTarget.of(table, _WRITE_ID))
    assert stored_files(folder_of(table)) == before - left
    assert not any(Path(path).exists() for path in left)


@pytest.mark.parametrize("committed", [True, False])
def test_several_writes_are_settled_together(catalog: SqlCatalog, committed: bool) -> None:
    table = make_table(catalog)
    before = listing(table)
    writes = InFlightWrites(table.io)
    paths = []
    for name in ("a", "b"):
        target = WriteTarget.of(table)
        write = InFlightWrite(target, operation="append")
        write.mark()
        paths.append(f"{table.location()}/data/{name}.parquet")
        write.add(paths[-1:])
        writes.add(write)
    unused = f"{table.location()}/data/unused.parquet"
    for path in (*paths, unused):
        with table.io.new_output(path).create() as stream:
            stream.write(b"rows")
    writes.drop([unused])
    writes.committed() if committed else writes.abandon()
    left = {f"data/{name}.parquet" for name in ("a", "b")} if committed else set()
    assert listing(table) == before | left
