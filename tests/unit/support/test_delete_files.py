"""The delete files of `tests.support` are right by PyIceberg's own reader."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.catalogs import make_catalog
from tests.support.commits import (
    append_arrow,
    commit_files,
    data_file_paths,
    data_files,
    delete_entries,
)
from tests.support.data_files import add_parquet_file, write_parquet_file
from tests.support.delete_files import (
    commit_deletion_vectors,
    commit_equality_deletes,
    commit_position_deletes,
    write_position_deletes,
)
from tests.support.manifests import field_of, read_first_row_ids
from tests.support.puffin import deletion_vector_blob, puffin_file
from tests.support.v3_tables import create_v3_table, upgrade_to_v3

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False), NestedField(2, "color", StringType())
)
_BY_COLOR = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "color"))


def _rows(start: int, stop: int, color: str = "red") -> pa.Table:
    ids = list(range(start, stop))
    return pa.table({"id": pa.array(ids, pa.int64()), "color": [color] * len(ids)})


def _ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def catalog(tmp_path: Path):
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def two_files(catalog) -> Table:
    table = catalog.create_table("db.two_files", _SCHEMA)
    add_parquet_file(table, _rows(0, 100))
    add_parquet_file(table, _rows(100, 200))
    return table


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("one_file", [False, True])
def test_position_deletes_remove_rows_in_one_snapshot(two_files, one_file, file_format):
    first, second = data_file_paths(two_files)
    snapshots = len(two_files.snapshots())
    written = commit_position_deletes(
        two_files,
        {first: [99, 0, 5], second: range(10)},
        one_file=one_file,
        file_format=file_format,
    )
    assert len(written) == (1 if one_file else 2)
    assert _ids(two_files) == sorted({*range(200)} - {0, 5, 99} - {*range(100, 110)})
    assert len(two_files.snapshots()) == snapshots + 1
    assert two_files.current_snapshot().summary["added-position-deletes"] == "13"
    assert {entry.data_file.content for entry in delete_entries(two_files)} == {
        DataFileContent.POSITION_DELETES
    }


def test_position_deletes_leave_rows_appended_later(two_files):
    first, _ = data_file_paths(two_files)
    commit_position_deletes(two_files, {first: [0]})
    two_files.append(_rows(200, 210))
    assert _ids(two_files) == list(range(1, 210))


def test_position_deletes_take_the_spec_and_partition_of_their_data_file(catalog):
    table = catalog.create_table("db.colors", _SCHEMA, partition_spec=_BY_COLOR)
    for number, color in enumerate(["red", "red", "blue"]):
        add_parquet_file(table, _rows(number * 10, number * 10 + 10, color))
    with table.update_spec() as update:
        update.remove_field("color")
    paths = data_file_paths(table)
    commit_position_deletes(table, {path: [0] for path in paths}, one_file=True)
    entries = delete_entries(table)
    assert sorted(entry.data_file.partition[0] for entry in entries) == ["blue", "red"]
    assert {entry.data_file.spec_id for entry in entries} == {0}
    assert _ids(table) == sorted({*range(30)} - {0, 10, 20})


def test_deletes_of_the_same_snapshot_as_their_data_apply(catalog):
    table = catalog.create_table("db.same", _SCHEMA)
    data_file = write_parquet_file(table, _rows(0, 10))
    deletes = write_position_deletes(table, [data_file], {data_file.file_path: [3]})
    commit_files(table, [data_file], deletes)
    assert len(table.snapshots()) == 1
    assert _ids(table) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_position_deletes_of_unknown_files_are_refused(two_files):
    with pytest.raises(ValueError, match="not live data files"):
        commit_position_deletes(two_files, {"file:///nowhere.parquet": [1]})


def test_equality_deletes_make_a_scan_fail(two_files):
    commit_equality_deletes(two_files, ["id"], [{"id": 5}, {"id": 7}])
    (entry,) = delete_entries(two_files)
    assert entry.data_file.content == DataFileContent.EQUALITY_DELETES
    assert list(entry.data_file.equality_ids) == [1]
    with pytest.raises(ValueError, match="equality deletes"):
        two_files.scan().to_arrow()


def test_deletion_vectors_of_several_files_share_a_puffin_file(two_files):
    upgrade_to_v3(two_files)
    append_arrow(two_files, _rows(200, 300))
    first, second, third = data_file_paths(two_files)
    (puffin,) = commit_deletion_vectors(two_files, {first: [1, 2], third: [99]})
    assert _ids(two_files) == sorted({*range(300)} - {1, 2, 299})
    content = Path(puffin.removeprefix("file://")).read_bytes()
    for entry in delete_entries(two_files):
        vector = entry.data_file
        assert vector.file_format == FileFormat.PUFFIN
        offset = field_of(vector, "content_offset")
        blob = content[offset : offset + field_of(vector, "content_size_in_bytes")]
        positions = {first: [1, 2], third: [99]}[field_of(vector, "referenced_data_file")]
        assert blob == deletion_vector_blob(positions)
        assert vector.record_count == len(positions)
    commit_deletion_vectors(two_files, {second: [0]})
    assert _ids(two_files) == sorted({*range(300)} - {1, 2, 100, 299})


def test_a_second_deletion_vector_replaces_the_first(two_files):
    upgrade_to_v3(two_files)
    first, second = data_file_paths(two_files)
    commit_deletion_vectors(two_files, {first: [1], second: [1]})
    commit_deletion_vectors(two_files, {first: [2]}, one_puffin=False)
    referenced = [
        (field_of(entry.data_file, "referenced_data_file"), entry.data_file.record_count)
        for entry in delete_entries(two_files)
    ]
    assert sorted(referenced) == sorted([(first, 2), (second, 1)])
    assert _ids(two_files) == sorted({*range(200)} - {1, 2, 101})


def test_tables_born_in_version_3_keep_row_ids_over_commits(catalog):
    table = create_v3_table(catalog, "db.born", _SCHEMA, partition_spec=_BY_COLOR)
    for number, color in enumerate(["red", "blue"]):
        append_arrow(table, _rows(number * 10, number * 10 + 10, color))
    commit_deletion_vectors(table, {path: [0] for path in data_file_paths(table)})
    assert _ids(table) == sorted({*range(20)} - {0, 10})
    assert table.metadata.next_row_id == 20
    snapshot = table.current_snapshot()
    assert sorted(read_first_row_ids(table.io, snapshot.manifest_list).values()) == [0, 10]
    kinds = [manifest.content for manifest in snapshot.manifests(table.io)]
    assert sorted(kinds) == [ManifestContent.DATA, ManifestContent.DATA, ManifestContent.DELETES]


def test_version_2_position_deletes_still_apply_after_an_upgrade(two_files):
    first, second = data_file_paths(two_files)
    commit_position_deletes(two_files, {first: [0]})
    upgrade_to_v3(two_files)
    commit_deletion_vectors(two_files, {second: [0]})
    assert _ids(two_files) == sorted({*range(200)} - {0, 100})


def test_deletion_vectors_need_version_3(two_files):
    with pytest.raises(ValueError, match="upgrade_to_v3"):
        commit_deletion_vectors(two_files, {data_files(two_files)[0].file_path: [1]})


def test_puffin_framing_follows_the_spec_beyond_32_bits():
    positions = [0, 7, 2**32 + 5, 3 * 2**32]
    blob = deletion_vector_blob(positions)
    (length,) = struct.unpack(">I", blob[:4])
    assert blob[4:8] == bytes.fromhex("d1d33964")
    assert struct.unpack("<Q", blob[8:16]) == (3,)
    assert struct.unpack(">I", blob[4 + length :]) == (zlib.crc32(blob[4 : 4 + length]),)
    content, _ = puffin_file({"a": positions, "b": [1]})
    vectors = deletion_vectors_from_puffin_file(PuffinFile(content))
    assert {v.referenced_data_file: v.to_vector().to_pylist() for v in vectors} == {
        "a": positions,
        "b": [1],
    }
