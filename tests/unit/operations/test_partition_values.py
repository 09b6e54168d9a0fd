"""Partition values that PyIceberg 0.12 reads wrongly are read right, also when written again."""

from __future__ import annotations

import math
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, UUIDType

import icestream as ice
from tests.support.tables import make_catalog

_UUIDS = [uuid.UUID(int=n << 64) for n in (1, 2, 3)]
_SCHEMA = Schema(
    NestedField(1, "x", DoubleType(), required=False),
    NestedField(2, "u", UUIDType(), required=False),
    NestedField(3, "r", LongType(), required=True),
)
_ROWS = pa.table(
    {
        "x": [0.1, 0.2, math.nan],
        "u": pa.array([u.bytes for u in _UUIDS], pa.binary(16)),
        "r": [1, 2, 3],
    }
)


def _table(folder: Path, source_id: int, version: int = 2) -> Table:
    catalog = make_catalog(folder)
    field = PartitionField(source_id, 1000, IdentityTransform(), "part")
    table = catalog.create_table(
        "db.t",
        _SCHEMA,
        partition_spec=PartitionSpec(field),
        properties={"format-version": str(version)},
    )
    ice.append(table, _ROWS)
    return table


def _ids(table: Table, where: object = None) -> list[int]:
    return sorted(n for batch in ice.scan(table, where=where) for n in batch["r"].to_pylist())


def test_a_double_partition_is_found_by_its_value_also_after_its_manifest_was_rewritten(tmp_path):
    table = _table(tmp_path, source_id=1)
    assert _ids(table, "x == 0.1") == [1]
    report = ice.delete(table, "x == 0.2")  # by metadata: the manifest is written again
    assert (report.files_removed, report.files_added) == (1, 0)
    assert _ids(table, "x == 0.1") == [1]
    assert _ids(table) == [1, 3]


def test_dynamic_overwrite_replaces_a_double_partition(tmp_path):
    table = _table(tmp_path, source_id=1)
    ice.overwrite(table, pa.table({"x": [0.1, math.nan], "r": [10, 30]}), partitions="dynamic")
    assert _ids(table) == [2, 10, 30]


@pytest.mark.parametrize("literal", [_UUIDS[1], _UUIDS[1].bytes], ids=["uuid", "bytes"])
def test_a_uuid_partition_is_found_by_its_value(tmp_path, literal):
    table = _table(tmp_path, source_id=2)
    assert _ids(table, EqualTo("u", literal)) == [2]
    assert ice.delete(table, EqualTo("u", literal)).rows_deleted == 1
    assert _ids(table) == [1, 3]


def test_a_dropped_partition_field_of_a_required_column_is_written_in_version_1(tmp_path):
    table = _table(tmp_path, source_id=3, version=1)
    with table.update_spec() as update:
        update.remove_field("part")
    ice.append(table, _ROWS)
    assert _ids(table, "r = 2") == [2, 2]
    ice.delete(table, "r = 2")
    assert _ids(table) == [1, 1, 3, 3]
    assert sorted(table.scan().to_arrow()["r"].to_pylist()) == [1, 1, 3, 3]
