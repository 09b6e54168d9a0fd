"""The rows that an overwrite or a delete removes, and the files that it leaves or rewrites."""

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
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import icestream as ice
from icestream.operations.kept_tasks import KeptTasks
from tests.support.delete_files import commit_position_deletes
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
    summary_of,
)
from tests.support.tables import commit_files, data_file_paths, data_files, write_parquet_file


def test_whole_files_make_a_delete_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    report = ice.delete(table, "id >= 5")
    assert report.operation == "delete"
    assert summary_of(table).operation == Operation.DELETE
    assert (report.files_added, report.files_removed) == (0, 1)
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_files_without_matching_rows_stay_as_they_are(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, batch([(1, 1), (9, 9)]))
    ice.append(table, batch([(2, 2), (8, 8)]))
    kept = data_files(table)[0].file_path
    report = ice.delete(table, "id = 1")
    assert (report.files_removed, report.files_added) == (1, 1)
    assert kept in [file.file_path for file in data_files(table)]


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


_ALL = [(n, n // 2) for n in range(6)]  # parts 0, 0, 1, 1, 2, 2


def test_files_whose_rows_all_go_are_removed_without_being_read(catalog: SqlCatalog) -> None:
    """Their bytes are spoilt here: whoever reads them, fails."""
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch(_ALL))
    ice.append(table, ids(100, 110, 5))
    for file in data_files(table):
        if file.partition[0] in (2, 5):
            _spoil(file.file_path)
    report = ice.overwrite(table, iter(()), where="part = 2 or id >= 100")
    assert report.rows_deleted == 12
    assert rows_of(table) == _ALL[:4]


def _spoil(path: str) -> None:
    with open(path.removeprefix("file://"), "wb") as file:
        file.write(b"spoilt")


def test_an_unknown_isolation_level_is_named(catalog: SqlCatalog) -> None:
    table = make_table(catalog, write__update__isolation_level="loose")
    ice.append(table, ids(0, 3))
    before = listing(table)
    with pytest.raises(ice.InvalidArgumentError, match="loose"):
        ice.overwrite(table, ids(5, 6))
    assert listing(table) == before


def test_rows_of_deleted_files_are_counted_inside_the_memory_that_the_stream_fills(
    catalog: SqlCatalog,
) -> None:
    """The count reads while the writer still holds rows: neither may wait for the other."""
    table = make_table(catalog)
    ice.append(table, ids(0, 5000))
    commit_position_deletes(table, {data_file_paths(table)[0]: range(10)})
    big = pa.Table.from_batches(ids(0, 200_000).to_batches(max_chunksize=10_000))
    report = ice.overwrite(table, big, memory="16MB")
    assert (report.rows_deleted, report.rows_inserted) == (4990, 200_000)


_ON_READ = {"write__delete__mode": "merge-on-read"}


def test_files_whose_rows_all_match_are_removed(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_ON_READ)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    report = ice.delete(table, "id >= 4")
    assert ids_of(table) == [0, 1, 2, 3]
    assert (report.files_removed, report.delete_files_added, report.rows_deleted) == (1, 1, 6)


def test_format_version_1_has_its_files_written_again(catalog: SqlCatalog) -> None:
    table = make_table(catalog, version=1, **_ON_READ)
    ice.append(table, ids(0, 5))
    report = ice.delete(table, "id = 3")
    assert (report.files_added, report.files_removed, report.delete_files_added) == (1, 1, 0)
    assert ids_of(table) == [0, 1, 2, 4]


def test_a_mode_that_does_not_exist_is_refused(catalog: SqlCatalog) -> None:
    table = make_table(catalog, write__delete__mode="sometimes")
    ice.append(table, ids(0, 5))
    before = listing(table)
    with pytest.raises(ice.InvalidArgumentError, match=r"write\.delete\.mode.*'sometimes'"):
        ice.delete(table, "id = 3")
    assert listing(table) == before


def test_descriptions_of_files_that_lose_all_rows_are_charged_once(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for number in range(4):
        ice.append(table, pa.table({"id": [number]}))
    added: list[str] = []
    add = KeptTasks.add

    def noted(tasks: KeptTasks, task: FileScanTask) -> None:
        added.append(task.file.file_path)
        add(tasks, task)

    monkeypatch.setattr(KeptTasks, "add", noted)
    assert ice.delete(table, "id is not null").files_removed == 4
    assert len(added) == len(set(added)) == 4
