"""Loads that change the schema: in the same commit as their rows, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

import icestream as ice
from tests.support.loads import (
    before_commits,
    head_of,
    ids,
    listing,
    make_table,
    snapshots_of,
    summary_of,
)

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def _with(number: int, column: str) -> pa.Table:
    return ids(number, number + 1).append_column(column, pa.array([number]))


def _column(table: Table, name: str) -> list[object]:
    rows = table.refresh().scan().to_arrow().to_pylist()
    return [row[name] for row in sorted(rows, key=lambda row: row["id"])]


def test_new_columns_come_with_the_rows_in_one_commit(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    with before_commits(catalog, lambda: None):  # the catalog is asked at least once ...
        report = ice.append(table, _with(1, "new"), schema_mode="evolve")
    assert report.commit_attempts == 1  # ... and only once
    assert len(report.schema_changes) == 1
    assert _column(table, "new") == [None, 1]
    assert len(snapshots_of(table)) == 2
    assert head_of(table).schema_id == table.schema().schema_id == 1


def test_nested_widened_and_loosened_columns_are_committed_too(catalog: SqlCatalog) -> None:
    inner = StructType(NestedField(4, "a", IntegerType(), required=True))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "n", IntegerType(), required=True),
        NestedField(3, "s", inner, required=False),
    )
    table = catalog.create_table("db.nested", schema)
    first = pa.table({"id": [0], "n": pa.array([1], pa.int32()), "s": [{"a": 1}]})
    ice.append(table, first.cast(pa.schema([("id", "int64"), ("n", "int32"),
        ("s", pa.struct([("a", pa.int32())]))])))  # fmt: skip
    rows = pa.table({"id": [1], "n": pa.array([None], pa.int64()), "s": [{"a": None, "b": "x"}]})
    struct = pa.struct([("a", pa.int32()), ("b", pa.string())])
    rows = rows.set_column(2, "s", rows["s"].combine_chunks().cast(struct))
    report = ice.append(table, rows, schema_mode="evolve")
    assert report.schema_changes
    found = sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert found == [
        {"id": 0, "n": 1, "s": {"a": 1, "b": None}},
        {"id": 1, "n": None, "s": {"a": None, "b": "x"}},
    ]
    now = table.schema()
    assert now.find_type("n") == LongType()
    assert not now.find_field("n").required
    assert not now.find_field("s.a").required
    assert now.find_field("id").required
    assert now.find_type("s.b") == StringType()
    assert len(snapshots_of(table)) == 2


def test_the_schema_stays_when_the_commit_is_refused(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 1))
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, lambda: ice.append(theirs, ids(5, 6))),
        pytest.raises(ice.CommitConflictError),
    ):
        ice.overwrite(table, _with(1, "new"), schema_mode="evolve")
    assert "new" not in table.refresh().schema().column_names
    assert len(table.schemas()) == 1


def _evolve(theirs: Table, column: str) -> Callable[[], object]:
    """Somebody else adds a column, with rows."""
    return lambda: ice.append(theirs, _with(50, column), schema_mode="evolve")


def test_a_source_that_opens_again_is_loaded_on_top_of_a_concurrent_evolution(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    opened = []

    def source() -> pa.Table:
        opened.append(1)
        return _with(1, "ours")

    with before_commits(catalog, _evolve(other.load_table("db.t"), "theirs")):
        report = ice.append(table, source, schema_mode="evolve")
    assert len(opened) == 2
    assert report.rows_inserted == 1
    assert _column(table, "ours") == [1, None]
    assert _column(table, "theirs") == [None, 50]
    assert len(snapshots_of(table)) == 2
    # What the first run wrote is gone: two loads of a file, a manifest and a list each.
    assert len(listing(table)) == 6


@pytest.mark.parametrize("kind", ["table", "list"])
def test_what_holds_its_rows_opens_again_as_well(
    catalog: SqlCatalog, other: SqlCatalog, kind: str
) -> None:
    table = make_table(catalog, **_QUICK)
    source = _with(1, "ours") if kind == "table" else _with(1, "ours").to_batches()
    with before_commits(catalog, _evolve(other.load_table("db.t"), "theirs")):
        ice.append(table, source, schema_mode="evolve")
    assert _column(table, "ours") == [1, None]


def test_a_source_that_runs_dry_is_a_conflict_and_nothing_is_left(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, _evolve(theirs, "theirs")),
        pytest.raises(ice.CommitConflictError, match=r"schema of db\.t was changed"),
    ):
        ice.append(table, iter(_with(1, "ours").to_batches()), schema_mode="evolve")
    assert table.refresh().schema().column_names[-1] == "theirs"
    assert len(snapshots_of(table)) == 1
    assert len(listing(table)) == 3


def test_a_source_is_not_opened_again_and_again(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")
    names = iter("abcdef")
    opened = []

    def source() -> pa.Table:
        opened.append(1)
        return _with(1, "ours")

    with (
        before_commits(catalog, lambda: _evolve(theirs, next(names))(), times=3),
        pytest.raises(ice.CommitConflictError),
    ):
        ice.append(table, source, schema_mode="evolve")
    assert len(opened) == 3


def test_the_same_evolution_by_two_is_done_once(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    stream = iter(_with(1, "new").to_batches())  # it could not be opened again
    with before_commits(catalog, _evolve(other.load_table("db.t"), "new")):
        ice.append(table, stream, schema_mode="evolve")
    assert _column(table, "new") == [1, 50]
    assert len(table.schemas()) == 2


def test_a_frozen_load_goes_beside_an_evolution(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    with before_commits(catalog, _evolve(other.load_table("db.t"), "theirs")):
        ice.append(table, iter(ids(1, 2).to_batches()))
    assert _column(table, "theirs") == [None, 50]
    assert summary_of(table)["total-records"] == "2"


def test_a_mismatch_is_found_before_anything_is_written(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    pulled = []

    def stream() -> object:
        for piece in _with(1, "new").to_batches() * 3:
            pulled.append(1)
            yield piece

    for write in (
        lambda: ice.append(table, stream()),
        lambda: ice.overwrite(table, stream()),
        lambda: ice.write_files(table, stream()),
        lambda: ice.append(table.transaction(), stream()),
    ):
        pulled.clear()
        with pytest.raises(ice.SchemaMismatchError, match="new"):
            write()
        assert len(pulled) == 1  # to learn the columns
    assert listing(table) == set()


def test_columns_that_are_not_the_tables_are_dropped_and_named(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    report = ice.append(table, _with(1, "new"), schema_mode="discard")
    assert report.columns_discarded == ("new",)
    assert "new" not in table.refresh().schema().column_names
    assert len(table.schemas()) == 1


def test_the_name_mapping_learns_the_new_columns(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "place", StructType(NestedField(3, "x", LongType()))),
    )
    mapping = schema.name_mapping.model_dump_json()
    properties = {"schema.name-mapping.default": mapping}
    table = catalog.create_table("db.mapped", schema, properties=properties)
    rows = pa.table({"id": [1], "place": [{"x": 1, "y": [2]}], "new": [{"a": "b"}]})
    ice.append(table, rows, schema_mode="evolve")
    assert table.refresh().name_mapping().model_dump() == table.schema().name_mapping.model_dump()
    ice.append(table, pa.table({"id": [2], "more": [1]}), schema_mode="evolve")
    assert table.refresh().name_mapping().model_dump() == table.schema().name_mapping.model_dump()


@pytest.mark.parametrize(
    ("kind", "rows", "field"),
    [
        (
            ListType(2, LongType(), element_required=True),
            pa.array([[1, None]], pa.list_(pa.int64())),
            "v.element",
        ),
        (
            MapType(2, StringType(), 3, LongType(), value_required=True),
            pa.array([[("a", None)]], pa.map_(pa.string(), pa.int64())),
            "v.value",
        ),
    ],
    ids=["list", "map"],
)
def test_elements_and_values_that_hold_nulls_are_made_optional(
    catalog: SqlCatalog, kind: IcebergType, rows: pa.Array, field: str
) -> None:
    table = catalog.create_table("db.t", Schema(NestedField(1, "v", kind, required=False)))
    report = ice.append(table, pa.table({"v": rows}), schema_mode="evolve")
    assert report.schema_changes == (f"column {field!r} made optional",)
    assert not table.refresh().schema().find_field(field).required
