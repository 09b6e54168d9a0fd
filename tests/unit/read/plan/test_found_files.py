"""Files that may contain rows of a scan, found in the manifests of a table."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

import icestream as ice
from icestream.read.plan import found_files
from icestream.read.plan.found_files import FileFilter, FileTest, FoundFile, find_files
from icestream.read.plan.manifests import metadata_files
from icestream.read.request import request


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three snapshots, each with one file in each of the partitions 0 to 3."""
    rows = pa.table({"id": range(8), "part": [n % 4 for n in range(8)]})
    table = catalog.create_table("db.t", rows.schema)
    with table.update_spec() as update:
        update.add_identity("part")
    for start in (0, 100, 200):
        ids = pa.array([start + n for n in range(8)])
        ice.append(table, rows.set_column(0, "id", ids))
    return table


def _found(table: Table, where: str | None) -> list[FoundFile]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = metadata_files(table.io, table="db.t")
    manifests = [m for m in files.manifests_of(snapshot) if m.content == ManifestContent.DATA]
    travelled = pickle.loads(pickle.dumps(FileFilter.of(request(table, where=where).data_scan)))
    return list(find_files(manifests, files, FileTest(travelled)))


def test_files_are_selected_by_their_partition_and_their_statistics(table: Table) -> None:
    assert len(_found(table, None)) == 12
    assert len(_found(table, "part = 2")) == 3
    assert len(_found(table, "id >= 200")) == 4
    assert [found.file.record_count for found in _found(table, "part = 2 and id = 106")] == [2]
    assert _found(table, "id = 50") == []


def test_a_file_whose_partition_has_only_matching_rows_is_known(table: Table) -> None:
    assert all(found.all_rows_match for found in _found(table, "part in (1, 2)"))
    assert not any(found.all_rows_match for found in _found(table, "id >= 0"))


def test_files_have_the_sequence_number_of_their_snapshot(table: Table) -> None:
    by_number: dict[int, int] = {}
    for found in _found(table, None):
        by_number[found.sequence_number] = by_number.get(found.sequence_number, 0) + 1
    assert by_number == {1: 4, 2: 4, 3: 4}


def test_the_same_files_are_selected_however_few_partitions_are_kept_in_mind(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_files, "_KNOWN_PARTITIONS", 1)
    assert len(_found(table, "part > 0 and id < 150")) == 6


def test_a_spec_that_the_table_lacks_is_not_taken_for_another(table: Table) -> None:
    test = FileTest(FileFilter.of(request(table).data_scan))
    assert test.of_spec(table.spec().spec_id) is test.of_spec(table.spec().spec_id)
    with pytest.raises(KeyError):
        test.of_spec(99)
