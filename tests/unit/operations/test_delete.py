"""`delete`: exactly the rows for which the filter is true go, however that is found out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import (
    And,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    NotEqualTo,
    NotIn,
    NotNull,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

import icestream as ice
from tests.support.loads import (
    BY_PART,
    batch,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    snapshots_of,
    summary_of,
)
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    all_types_rows,
    all_types_schema,
    data_files,
)


@pytest.mark.parametrize("version", [1, 2])
def test_matching_rows_go_in_one_snapshot(catalog: SqlCatalog, version: int) -> None:
    table = make_table(catalog, version=version)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    ice.append(table, ids(10, 15))
    report = ice.delete(table, "id >= 3 and id < 11")
    assert ids_of(table) == [0, 1, 2, 11, 12, 13, 14]
    assert len(snapshots_of(table)) == 4
    assert (report.rows_inserted, report.rows_deleted) == (0, 8)
    assert (report.files_added, report.files_removed) == (1, 3)
    assert summary_of(table).operation == Operation.OVERWRITE
    assert summary_of(table)["total-records"] == "7"


def test_nothing_to_delete_makes_no_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    assert ice.delete(table, "id = 1").snapshot_id is None
    ice.append(table, ids(0, 5))
    before = listing(table)
    for where in ("id = 99", "id = 3 and part = 7", "id is null"):
        report = ice.delete(table, where)
        assert (report.snapshot_id, report.rows_deleted) == (None, 0)
    assert listing(table) == before


def test_properties_and_a_branch_are_taken(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 5))
    table.manage_snapshots().create_branch(head_of(table).snapshot_id, "b").commit()
    ice.delete(table, "id < 2", branch="b", properties={"why": "test"})
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert ids_of(table, branch="b") == [2, 3, 4]
    assert summary_of(table, "b")["why"] == "test"


# Null and NaN: told by rows, by partitions and by statistics


def _plain_ids(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


# Columns of every kind


def test_fields_of_structs_are_filtered(catalog: SqlCatalog) -> None:
    inner = StructType(NestedField(3, "a", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", inner))
    table = catalog.create_table("db.nested", schema)
    ice.append(table, pa.table({"id": [1, 2, 3], "s": [{"a": 1}, {"a": None}, None]}))
    ice.append(table, pa.table({"id": [4, 5], "s": [{"a": 7}, {"a": 8}]}))
    full = head_of(table).snapshot_id
    for where, left in [
        (GreaterThan("s.a", 5), [1, 2, 3]),
        (NotEqualTo("s.a", 5), [2, 3]),
        (NotEqualTo("s.a", 7), [2, 3, 4]),
        (IsNull("s.a"), [1, 4, 5]),
        (NotNull("s.a"), [2, 3]),
    ]:
        ice.delete(table, where)
        assert _plain_ids(table) == left, where
        table.manage_snapshots().set_current_snapshot(full).commit()


def test_a_dot_in_a_column_name_is_no_path(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "a.b", LongType()))
    table = catalog.create_table("db.dots", schema)
    ice.append(table, pa.table({"id": [1, 2, 3], "a.b": [1, 2, None]}))
    ice.delete(table, EqualTo("a.b", 1))
    assert _plain_ids(table) == [2, 3]


def test_rows_of_every_type_are_written_again_unchanged(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.types", all_types_schema())
    table.append(all_types_rows(40))
    before = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    gone = sorted(before)[::2]
    report = ice.delete(table, In("id", gone))
    assert report.rows_deleted == len(gone)
    after = {row["id"]: row for row in table.refresh().scan().to_arrow().to_pylist()}
    assert sorted(after) == sorted(set(before) - set(gone))
    assert all(repr(after[i]) == repr(before[i]) for i in after)


@pytest.mark.parametrize("recipe", EVOLUTIONS.values(), ids=EVOLUTIONS.keys())
def test_rows_of_evolved_schemas_are_written_again_as_they_read(
    catalog: SqlCatalog, recipe: Any
) -> None:
    evolved = recipe(catalog)
    gone = evolved.expected[0]["id"]
    ice.delete(evolved.table, EqualTo("id", gone))
    left = sorted(evolved.table.refresh().scan().to_arrow().to_pylist(), key=lambda r: r["id"])
    assert left == [row for row in evolved.expected if row["id"] != gone]
    ice.delete(evolved.table, NotEqualTo("id", gone))
    assert evolved.table.refresh().scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("recipe", PARTITIONINGS.values(), ids=PARTITIONINGS.keys())
def test_rows_of_every_partitioning_are_written_again(catalog: SqlCatalog, recipe: Any) -> None:
    partitioned = recipe(catalog)
    where = And(LessThan("id", 25), NotEqualTo("category", "red"))
    ice.delete(partitioned.table, where)
    gone = [r for r in partitioned.expected if r["id"] < 25 and r["category"] not in ("red", None)]
    assert gone
    found = partitioned.table.refresh().scan().to_arrow().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == [
        row for row in partitioned.expected if row not in gone
    ]
    for file in data_files(partitioned.table):
        spec = partitioned.table.specs()[file.spec_id]
        assert len(file.partition) == len(spec.fields)


def test_partition_values_survive_when_their_column_was_dropped(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 10), (2, 20), (3, 20), (4, None)]))
    with table.update_spec() as update:
        update.remove_field("part")
    with table.update_schema() as update:
        update.delete_column("part")
    ice.delete(table, "id = 2")
    assert _plain_ids(table) == [1, 3, 4]
    old = {f.partition[0] for f in data_files(table) if f.spec_id == 0}
    assert old == {10, None}
    ice.overwrite(table, table.scan().to_arrow().slice(0, 1))
    assert len(_plain_ids(table)) == 1


def test_a_filter_on_a_promoted_column_reads_old_bounds_right(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "n", IntegerType()))
    table = catalog.create_table("db.promoted", schema)
    narrow = pa.schema([("id", pa.int32()), ("n", pa.int32())])
    ice.append(table, pa.table({"id": [1, 2], "n": [10, 20]}, schema=narrow))
    ice.append(table, pa.table({"id": [3], "n": [30]}, schema=narrow))
    with table.update_schema() as update:
        update.update_column("n", LongType())
    report = ice.delete(table, "n >= 20")
    assert (report.rows_deleted, report.files_removed) == (2, 2)
    assert _plain_ids(table) == [1]


def test_a_column_that_a_file_lacks_is_null_for_the_filter(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 2))
    with table.update_schema() as update:
        update.add_column("new", LongType())
    for where in (NotEqualTo("new", 5), NotIn("new", [1, 2]), GreaterThan("new", 0)):
        assert ice.delete(table, where).rows_deleted == 0, where
    assert ice.delete(table, IsNull("new")).rows_deleted == 2
