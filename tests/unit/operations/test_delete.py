"""`delete`: exactly the rows for which the filter is true go, however that is found out."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

import icestream as ice
from tests.support.filters import matches
from tests.support.loads import (
    BY_PART,
    batch,
    by,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    ordered,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    all_types_rows,
    all_types_schema,
    commit_files,
    data_files,
    write_parquet_file,
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


def test_whole_files_make_a_delete_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    report = ice.delete(table, "id >= 5")
    assert report.operation == "delete"
    assert summary_of(table).operation == Operation.DELETE
    assert (report.files_added, report.files_removed) == (0, 1)
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_nothing_to_delete_makes_no_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    assert ice.delete(table, "id = 1").snapshot_id is None
    ice.append(table, ids(0, 5))
    before = listing(table)
    for where in ("id = 99", "id = 3 and part = 7", "id is null"):
        report = ice.delete(table, where)
        assert (report.snapshot_id, report.rows_deleted) == (None, 0)
    assert listing(table) == before


def test_files_without_matching_rows_stay_as_they_are(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, batch([(1, 1), (9, 9)]))
    ice.append(table, batch([(2, 2), (8, 8)]))
    kept = data_files(table)[0].file_path
    report = ice.delete(table, "id = 1")
    assert (report.files_removed, report.files_added) == (1, 1)
    assert kept in [file.file_path for file in data_files(table)]


def test_properties_and_a_branch_are_taken(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 5))
    table.manage_snapshots().create_branch(head_of(table).snapshot_id, "b").commit()
    ice.delete(table, "id < 2", branch="b", properties={"why": "test"})
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert ids_of(table, branch="b") == [2, 3, 4]
    assert summary_of(table, "b")["why"] == "test"


# Null and NaN: told by rows, by partitions and by statistics

_VALUES: list[Any] = [None, -1, 0, 1, 2, 5]
_FILTERS: list[BooleanExpression] = [
    EqualTo("part", 1),
    NotEqualTo("part", 1),
    NotEqualTo("part", 77),
    GreaterThan("part", 0),
    NotIn("part", [77, 78]),
    Not(EqualTo("part", 1)),
    Not(In("part", [1, 2])),
    IsNull("part"),
    Or(NotEqualTo("part", 77), IsNull("part")),
    And(NotEqualTo("part", 77), NotIn("id", [0, 1])),
    Or(EqualTo("part", 5), NotEqualTo("id", 2)),
]
_SPECS = {
    "rows": UNPARTITIONED_PARTITION_SPEC,
    "identity": BY_PART,
}


def _true_for(where: BooleanExpression, row: tuple[Any, Any]) -> bool:
    """SQL's answer: null is neither; `matches` has `not in` true for null."""
    values = {"id": row[0], "part": row[1]}
    if row[1] is not None:
        return matches(where, values)
    if isinstance(where, Or):
        return _true_for(where.left, row) or _true_for(where.right, row)
    if isinstance(where, And):
        return _true_for(where.left, row) and _true_for(where.right, row)
    if isinstance(where, (IsNull, NotNull)) or where.term.name == "id":  # type: ignore[attr-defined]
        return matches(where, values)
    return False


@pytest.mark.parametrize("spec", _SPECS.values(), ids=_SPECS.keys())
def test_rows_for_which_the_filter_is_null_stay(catalog: SqlCatalog, spec: Any) -> None:
    """One file of all values, and files of one each: rows, partitions and statistics decide."""
    table = make_table(catalog, spec=spec)
    everything = [(i, value) for i, value in enumerate(_VALUES)]
    ice.append(table, batch(everything))
    singles = [(100, None), (101, 1), (102, 5)]
    for row in singles:
        ice.append(table, batch([row]))
    full = head_of(table).snapshot_id
    for where in _FILTERS:
        plain = where.child if isinstance(where, Not) else where
        turned = ~plain if isinstance(where, Not) else plain
        report = ice.delete(table, where)
        rows = [*everything, *singles]
        left = [row for row in rows if not _true_for(turned, row)]
        assert rows_of(table) == ordered(left), where
        assert report.rows_deleted == len(rows) - len(left), where
        table.manage_snapshots().set_current_snapshot(full).commit()


def test_null_texts_stay_where_a_prefix_is_not_theirs(catalog: SqlCatalog) -> None:
    table = catalog.create_table(
        "db.texts", Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
    )
    for rows in ([(1, "ab"), (2, None), (3, "xy")], [(4, None)], [(5, "ab")], [(6, "q" * 40)]):
        ice.append(table, pa.table({"id": [r[0] for r in rows], "s": [r[1] for r in rows]}))
    full = head_of(table).snapshot_id
    for where, left in [
        (NotStartsWith("s", "a"), [1, 2, 4, 5]),
        (StartsWith("s", "a"), [2, 3, 4, 6]),
        (NotEqualTo("s", "ab"), [1, 2, 4, 5]),
        (EqualTo("s", "q" * 40), [1, 2, 3, 4, 5]),
        (EqualTo("s", "q" * 16), [1, 2, 3, 4, 5, 6]),
        (GreaterThan("s", "q" * 16), [1, 2, 4, 5]),
        (LessThan("s", "q" * 17), [2, 3, 4, 6]),
    ]:
        ice.delete(table, where)
        assert _plain_ids(table) == left, where
        table.manage_snapshots().set_current_snapshot(full).commit()


def _plain_ids(table: Table) -> list[int]:
    return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("partitioned", [False, True], ids=["rows", "partitioned"])
def test_nan_is_not_deleted_by_what_bounds_say(catalog: SqlCatalog, partitioned: bool) -> None:
    """Statistics leave NaN out: a file of 1.0, 2.0 and NaN has the bounds 1.0 and 2.0."""
    spec = by(2, IdentityTransform(), "x") if partitioned else UNPARTITIONED_PARTITION_SPEC
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", DoubleType()))
    table = catalog.create_table("db.nan", schema, partition_spec=spec)
    arrow = pa.schema([("id", "int64"), ("x", "float64")])
    for first, values in ((0, [1.0, 2.0, math.nan, None]), (10, [1.0, 2.0, math.nan])):
        rows = {"id": list(range(first, first + len(values))), "x": values}
        ice.append(table, pa.table(rows, schema=arrow))
    ice.append(table, pa.table({"id": [20], "x": [math.nan]}))
    full = head_of(table).snapshot_id
    for where, gone in [
        (LessThan("x", 5.0), [0, 1, 10, 11]),
        (GreaterThan("x", 0.0), [0, 1, 10, 11]),
        (And(GreaterThan("x", 0.0), LessThan("x", 5.0)), [0, 1, 10, 11]),
        (IsNaN("x"), [2, 12, 20]),
        (NotNaN("x"), [0, 1, 10, 11]),
        (EqualTo("x", 1.0), [0, 10]),
        (NotEqualTo("x", 1.0), [1, 2, 11, 12, 20]),
        (In("x", [1.0, 2.0]), [0, 1, 10, 11]),
        (NotIn("x", [1.0, 3.0]), [1, 2, 11, 12, 20]),
        (IsNull("x"), [3]),
    ]:
        report = ice.delete(table, where)
        left = [i for i in (*range(4), 10, 11, 12, 20) if i not in gone]
        assert _plain_ids(table) == left, where
        assert report.rows_deleted == len(gone), where
        table.manage_snapshots().set_current_snapshot(full).commit()


def test_bounds_without_null_counts_are_not_relied_on(catalog: SqlCatalog) -> None:
    """Other writers may leave the counts out; PyIceberg takes that for no nulls."""
    table = make_table(catalog)
    file = write_parquet_file(table, batch([(1, 1), (2, None)]))
    file._data[file._data.index(file.null_value_counts)] = None
    assert file.null_value_counts is None
    assert file.lower_bounds
    commit_files(table, [file])
    assert ice.delete(table, "part >= 1").rows_deleted == 1
    assert rows_of(table) == [(2, None)]


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
