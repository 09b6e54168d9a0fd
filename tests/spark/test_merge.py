"""A data frame merged by many tasks: the rows and the report of `icestream.merge`, one snapshot.

Most tests merge the same rows into two tables that are alike, once with Spark and once without.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.tasks import task_write
from icestream.spark.writing import keyed_frame, merge_job
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import BY_PART, before_commits, listing, snapshots_of
from tests.support.many_files import add_many_files, wide_rows
from tests.support.merges import MODES, Row, filled, nothing_in_vain, stream
from tests.support.tables import data_file_paths

_A = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
_B = [(11, 2, "k"), (12, 2, "l")]
_NEW = [(2, 5, "B"), (3, 1, "c"), (4, 6, "d"), (12, 1, "L")]
_MERGED = [(1, 1, "a"), (2, 5, "B"), (3, 1, "c"), (4, 6, "d"), (11, 2, "k"), (12, 1, "L")]
# What must not depend on who merges. A merge on Spark may add and read more files.
_FACTS = (
    "operation",
    "write_mode",
    "already_committed",
    "rows_inserted",
    "rows_updated",
    "rows_unchanged",
    "rows_deleted",
    "rows_superseded",
    "target_duplicates",
    "files_removed",
    "files_kept",
    "schema_changes",
    "columns_discarded",
    "commit_attempts",
)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """How changed rows are written."""
    return str(request.param)


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a few rows take the way of many: shuffled, sieved, changed by several tasks."""
    monkeypatch.setattr(keyed_frame, "_FEW_BYTES", -1)
    monkeypatch.setattr(merge_job, "_FEW_ROWS", -1)


class _Pair:
    """Two tables alike: Spark merges into one of them."""

    def __init__(self, spark: Any, make: Callable[[str], Table]) -> None:
        self._spark = spark
        self.ours, self.theirs = make("db.by_spark"), make("db.in_process")

    def both(self, change: Callable[[Table], object]) -> None:
        """Do something to both."""
        change(self.ours)
        change(self.theirs)

    def merge(
        self, rows: pa.Table, ddl: str | None = None, *, files: bool = True, **options: Any
    ) -> ice.MergeReport:
        """Merge into both, and compare what came of it: without `files`, only of rows."""
        frame = self._spark.createDataFrame(rows, ddl) if ddl else _frame(self._spark, rows)
        before = len(snapshots_of(self.ours))
        report = ice_spark.merge(frame, self.ours, **options)
        expected = ice.merge(self.theirs, rows, **options)
        names = _FACTS if files else [name for name in _FACTS if not name.startswith("files")]
        assert _facts(report, names) == _facts(expected, names)
        assert (report.snapshot_id is None) == (expected.snapshot_id is None)
        assert report.files_read >= expected.files_read
        branch = options.get("branch")
        assert rows_of(self.ours, branch) == rows_of(self.theirs, branch)
        assert self.ours.schema() == self.theirs.refresh().schema()
        added = len(snapshots_of(self.ours)) - before
        assert added == (report.snapshot_id is not None and not report.already_committed)
        assert nothing_in_vain(self.ours)
        return report


def _facts(report: ice.MergeReport, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(report, name) for name in names}


def rows_of(table: Table, branch: str | None = None) -> list[str]:
    """Every row as text, in order: NaN equals NaN there, and 0.0 does not equal -0.0."""
    with ice.scan(table.refresh(), branch=branch) as batches:
        ours = pa.table(batches)
    return sorted(repr(tuple(row.values())) for row in ours.to_pylist())


def _texts(rows: Iterable[Row]) -> list[str]:
    return sorted(map(repr, rows))


def _frame(spark: Any, rows: pa.Table) -> Any:
    return spark.createDataFrame(rows)


def _filled(catalog: Catalog, *files: list[Row], **options: Any) -> Callable[[str], Table]:
    return lambda name: filled(catalog, *files, name=name, **options)


# Rows


def test_rows_that_match_are_updated_and_the_others_inserted(
    spark: Any, catalog: SqlCatalog, mode: str
) -> None:
    pair = _Pair(spark, _filled(catalog, _A, _B))
    report = pair.merge(stream(_NEW), on="id", write_mode=mode, properties={"by": "spark"})
    assert rows_of(pair.ours) == _texts(_MERGED)
    assert (report.rows_updated, report.rows_inserted, report.rows_unchanged) == (2, 1, 1)
    assert pair.ours.current_snapshot().summary["by"] == "spark"
    assert pair.ours.current_snapshot().snapshot_id == report.snapshot_id
    assert 0 < report.peak_bytes_held <= report.memory_limit_bytes == 64_000_000
    assert pair.merge(stream(_NEW), on="id", write_mode=mode).snapshot_id is None


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
def test_many_tasks_make_one_snapshot_of_a_partitioned_table_whose_rows_move(
    spark: Any, catalog: SqlCatalog, mode: str
) -> None:
    """The key does not hold the partition; there are more files than tasks."""
    files = [[(n, part, f"{n}") for n in range(part, 60, 6)] for part in range(6)]
    pair = _Pair(spark, _filled(catalog, *files, spec=BY_PART))
    rows = [(n, n % 5, f"new {n}") for n in range(30, 90, 2)]
    report = pair.merge(stream(rows), on="id", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (15, 15)
    deleted = pair.merge(
        pa.table({"id": list(range(0, 200, 3))}),
        files=False,  # several tasks have made more of them
        on="id",
        when_matched="delete",
        when_not_matched="ignore",
        write_mode=mode,
    )
    assert deleted.rows_deleted == sum(1 for n in [*range(60), *range(60, 90, 2)] if n % 3 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("few_bytes", [-1, 16 << 20], ids=["many tasks", "one task"])
def test_no_key_and_no_row_goes_through_the_driver(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, few_bytes: int
) -> None:
    """Spark broadcasts by way of the driver."""
    monkeypatch.setattr(keyed_frame, "_FEW_BYTES", few_bytes)
    plans: list[str] = []

    def run_tasks(frame: Any, *kinds: type) -> Any:
        ended = task_write.run_tasks(frame, *kinds)
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return ended

    monkeypatch.setattr(merge_job, "run_tasks", run_tasks)
    _Pair(spark, _filled(catalog, _A, _B)).merge(stream(_NEW), on="id")
    (plan,) = plans
    assert ("SortMergeJoin" if few_bytes < 0 else "ShuffledHashJoin") in plan
    assert "Broadcast" not in plan


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize(
    ("partitioned", "has_keys", "lane_bytes", "several"),
    [
        (True, True, 64 << 20, False),
        (True, True, 1000, True),
        (True, False, 1000, True),
        (False, False, 64 << 20, True),
    ],
    ids=["small partition", "partition", "null keys of a partition", "null keys"],
)
def test_many_rows_of_one_partition_or_without_a_key_are_written_by_several_tasks(
    spark: Any,
    catalog: SqlCatalog,
    monkeypatch: pytest.MonkeyPatch,
    partitioned: bool,
    has_keys: bool,
    lane_bytes: int,
    several: bool,
) -> None:
    monkeypatch.setattr(merge_job, "_LANE_BYTES", lane_bytes)
    pair = _Pair(spark, _filled(catalog, _A, **({"spec": BY_PART} if partitioned else {})))
    rows = [(2, 1, "B"), *((n if has_keys else None, 1, f"{n}") for n in range(10, 90))]
    mode = "merge-on-read"  # so that no file is rewritten
    report = pair.merge(stream(rows), on="id", null_keys="insert", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (1, 80)
    assert (report.files_added > 2) == several


@pytest.mark.slow
@pytest.mark.parametrize("few_bytes", [-1, 16 << 20], ids=["many tasks", "one task"])
def test_columns_may_have_any_names(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, few_bytes: int
) -> None:
    monkeypatch.setattr(keyed_frame, "_FEW_BYTES", few_bytes)
    old = pa.table({"k.x": [1, 2], "a`b": ["a", "b"], "s": [{"c.d": 1}, {"c.d": 2}]})

    def make(name: str) -> Table:
        table = catalog.create_table(name, old.schema)
        ice.append(table, old)
        return table

    rows = pa.table(
        {
            "k.x": [2, 3, 3, None],
            "a`b": ["B", "c", "d", "e"],
            "s": [{"c.d": number} for number in range(4)],
        }
    )
    pair = _Pair(spark, make)
    options = {"on_duplicate": "last", "last_by": "a`b", "null_keys": "insert"}
    report = pair.merge(rows, on="k.x", **options)
    assert (report.rows_updated, report.rows_inserted, report.rows_superseded) == (1, 2, 1)
    assert ice_spark.append(_frame(spark, rows), pair.ours).rows_inserted == 4


@pytest.mark.usefixtures("many_tasks")
def test_rows_without_a_key_may_have_structs_alone(spark: Any, catalog: SqlCatalog) -> None:
    rows = pa.table({"s": [{"id": 1, "v": "a"}, {"id": None, "v": "b"}, {"id": None, "v": "c"}]})

    def make(name: str) -> Table:
        table = catalog.create_table(name, rows.schema)
        ice.append(table, rows.slice(0, 1))
        return table

    report = _Pair(spark, make).merge(rows, on="s.id", null_keys="insert")
    assert (report.rows_unchanged, report.rows_inserted) == (1, 2)


@pytest.mark.slow
def test_what_becomes_of_matches_and_of_others_is_the_callers_choice(
    spark: Any, catalog: SqlCatalog
) -> None:
    pair = _Pair(spark, _filled(catalog, _A, _B))
    rows = stream(_NEW)
    assert pair.merge(rows, on="id", when_matched="ignore").rows_inserted == 1
    updated = pair.merge(
        rows, on="id", when_not_matched="ignore", update_columns=["text"], skip_unchanged=False
    )
    assert (updated.rows_updated, updated.rows_unchanged) == (4, 0)
    assert {repr((2, 1, "B")), repr((11, 2, "k"))} <= set(rows_of(pair.ours))
    flagged = stream([(1, 9, "x"), (2, 9, "!"), (5, 9, "e")], op=pa.array(["D", None, "D"]))
    report = pair.merge(flagged, on="id", delete_when="op = 'D'", write_mode="merge-on-read")
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 1, 0)
    rows = stream([(3, 0, ""), (99, 9, "new")])
    report = pair.merge(rows, on="id", when_matched="delete", write_mode="merge-on-read")
    assert (report.rows_deleted, report.rows_inserted) == (1, 1)


# Keys


_KEY_COLUMNS = {
    "i": (IntegerType(), "int", 1, 2),
    "text": (StringType(), "string", "a", "a\0"),
    "u": (UUIDType(), "string", uuid.UUID(int=1), uuid.UUID(int=2**127 + 10)),
    "dec": (DecimalType(20, 3), "decimal(20,3)", Decimal("1.000"), Decimal("-1.001")),
    "d": (DateType(), "date", dt.date(1970, 1, 1), dt.date(1969, 12, 31)),
    "ts": (TimestampType(), "timestamp_ntz", dt.datetime(1969, 1, 1, 1), dt.datetime(2024, 5, 1)),
    "tz": (
        TimestamptzType(),
        "timestamp",
        dt.datetime(2024, 5, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
        dt.datetime(2024, 5, 1, 0, 0, 0, 2, tzinfo=dt.UTC),
    ),
    "b": (BinaryType(), "binary", b"", b"\0"),
    "fx": (FixedType(3), "binary", b"\0\0\0", b"abc"),
    "f": (FloatType(), "float", 0.0, float("nan")),
    "dbl": (DoubleType(), "double", float("nan"), -0.0),
    "flag": (BooleanType(), "boolean", False, True),
}


def _keyed_schema() -> Schema:
    fields = [
        NestedField(n, name, kind, required=False)
        for n, (name, (kind, *_)) in enumerate(_KEY_COLUMNS.items(), 1)
    ]
    who = StructType(
        NestedField(51, "name", StringType(), required=False),
        NestedField(52, "number", LongType(), required=False),
    )
    return Schema(
        *fields,
        NestedField(50, "who", who, required=False),
        NestedField(60, "value", StringType(), required=False),
    )


def _keyed_rows(value: str, *, sign: float) -> list[dict[str, Any]]:
    """A row, and for each column of the key one that differs in that column only."""
    first = {name: low for name, (_, _, low, _) in _KEY_COLUMNS.items()}
    first |= {"who": {"name": value, "number": 1}, "value": value}
    rows = [first]
    rows += [{**first, name: other} for name, (_, _, _, other) in _KEY_COLUMNS.items()]
    rows.append({**first, "who": {"name": value, "number": 2}})
    for row in rows:
        for name in ("f", "dbl"):
            row[name] = row[name] * sign if row[name] == 0 else row[name]
    return rows


def _keyed_stream(schema: Schema, rows: list[dict[str, Any]]) -> tuple[pa.Table, pa.Table]:
    """The rows as the table has them, and as Spark does: it has no UUIDs."""
    kinds = schema_to_pyarrow(schema, include_field_ids=False)
    as_bytes = [{**row, "u": row["u"].bytes} for row in rows]
    plain = pa.schema([f.with_type(pa.binary(16)) if f.name == "u" else f for f in kinds])
    ours = pa.Table.from_pylist(as_bytes, plain)
    # Text of an UUID may be in capitals, and nothing else about it changes.
    as_text = pa.array([str(row["u"]).upper() for row in rows])
    theirs = ours.set_column(ours.schema.get_field_index("u"), "u", as_text)
    at = theirs.schema.get_field_index("fx")
    theirs = theirs.set_column(at, "fx", theirs["fx"].cast(pa.binary()))
    return ours.cast(kinds), theirs


@pytest.mark.slow
def test_every_type_can_be_a_part_of_the_key(spark: Any, catalog: SqlCatalog, mode: str) -> None:
    """Rows differ by one column each; zeros match whatever their sign, and so do NaNs."""
    schema = _keyed_schema()
    old, _ = _keyed_stream(schema, _keyed_rows("old", sign=-1.0))
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    ice.append(table, old.slice(0, 8))
    ice.append(table, old.slice(8, old.num_rows - 9))
    _, new = _keyed_stream(schema, _keyed_rows("new", sign=1.0))
    ddl = ", ".join(f"{name} {kind}" for name, (_, kind, *_) in _KEY_COLUMNS.items())
    frame = spark.createDataFrame(
        new, f"{ddl}, who struct<name: string, number: long>, value string"
    )
    on = [*_KEY_COLUMNS, "who.number"]
    report = ice_spark.merge(frame, table, on=on, write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (old.num_rows - 1, 1)
    left = table.refresh().scan().to_arrow()
    assert left["value"].to_pylist() == ["new"] * old.num_rows
    assert [who["name"] for who in left["who"].to_pylist()] == ["new"] * old.num_rows
    again = ice_spark.merge(frame, table, on=on, write_mode=mode)
    assert (again.rows_unchanged, again.snapshot_id) == (old.num_rows, None)


@pytest.mark.slow
def test_a_single_column_rules_files_out_whatever_its_type(spark: Any, catalog: SqlCatalog) -> None:
    """By bounds, where Iceberg has an order for the type."""
    schema = _keyed_schema()
    old, _ = _keyed_stream(schema, _keyed_rows("old", sign=1.0))
    _, new = _keyed_stream(schema, _keyed_rows("new", sign=1.0)[:1])
    ddl = ", ".join(f"{name} {kind}" for name, (_, kind, *_) in _KEY_COLUMNS.items())
    frame = spark.createDataFrame(
        new, f"{ddl}, who struct<name: string, number: long>, value string"
    )
    for number, name in enumerate(("u", "text")):
        table = catalog.create_table(f"db.t{number}", schema)
        at = 1 + list(_KEY_COLUMNS).index(name)
        ice.append(table, old.slice(0, 1))
        ice.append(table, old.slice(at, 1))  # the row that differs in that column
        report = ice_spark.merge(frame, table, on=name)
        assert (report.rows_updated, report.rows_inserted) == (1, 0)
        assert report.files_read == (1 if name == "text" else 2)
        assert sorted(table.scan().to_arrow()["value"].to_pylist()) == ["new", "old"]


def test_null_keys_are_refused_or_inserted(spark: Any, catalog: SqlCatalog) -> None:
    pair = _Pair(spark, _filled(catalog, [(1, 1, "a"), (None, 2, "b")]))
    rows = stream([(None, 2, "c"), (1, 1, "A"), (None, 2, "c")])
    before = listing(pair.ours)
    with pytest.raises(ice.InvalidDataError, match=r"null in the key of 2 rows .*id = None") as no:
        ice_spark.merge(_frame(spark, rows), pair.ours, on="id")
    assert no.value.column == "id"
    assert listing(pair.ours) == before
    report = pair.merge(rows, on="id", null_keys="insert", on_duplicate="last")
    assert (report.rows_inserted, report.rows_updated, report.rows_superseded) == (2, 1, 0)


def test_duplicates_in_the_frame_are_refused_with_examples(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog, _A)
    before = listing(table)
    rows = stream([(n % 10, n, "x") for n in range(16)])
    with pytest.raises(ice.DuplicateKeysError, match=r"12 rows .* have the same key") as refusal:
        ice_spark.merge(_frame(spark, rows), table, on="id")
    assert refusal.value.column == "id"
    assert len(refusal.value.examples) == 5
    assert set(refusal.value.examples) <= {f"id = {n}" for n in range(6)}
    assert listing(table) == before


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
@pytest.mark.parametrize("kind", [pa.float64(), pa.timestamp("us", tz="UTC")], ids=str)
def test_the_last_of_duplicates_can_count(
    spark: Any, catalog: SqlCatalog, kind: pa.DataType
) -> None:
    """Null is lowest and NaN highest; of equal values the later row counts."""
    pair = _Pair(spark, _filled(catalog, [(1, 1, "a"), (1, 2, "a"), (2, 2, "b")]))
    top = float("nan") if pa.types.is_floating(kind) else 9
    at = pa.array(
        [5, None, top, None, None, 3, None, top], pa.float64() if top != 9 else pa.int64()
    )
    rows = [(1, 5, "x"), (1, None, "w"), (1, 5, "A"), (2, None, "v"), (2, None, "B")]
    rows += [(3, 3, "t"), (3, None, "u"), (3, -1, "C")]
    report = pair.merge(stream(rows, at=at.cast(kind)), on="id", on_duplicate="last", last_by="at")
    kept = [(1, 5, "A"), (1, 5, "A"), (2, None, "B"), (3, -1, "C")]
    assert rows_of(pair.ours) == _texts(kept)
    assert (report.rows_superseded, report.target_duplicates) == (5, 1)


@pytest.mark.slow
def test_the_last_row_of_a_partition_counts_where_no_column_says(
    spark: Any, catalog: SqlCatalog
) -> None:
    pair = _Pair(spark, _filled(catalog, _A))
    pair.merge(
        stream([(1, 1, "x"), (3, 3, "y"), (1, 7, "A"), (4, 4, "z"), (4, 4, "d")]),
        on="id",
        on_duplicate="last",
        schema_mode="evolve",
    )
    assert repr((1, 7, "A")) in rows_of(pair.ours)


# Tables


def _evolved(catalog: Catalog) -> Callable[[str], Table]:
    """Files of three schemas and two specs, and rows deleted by position in one of them."""

    def make(name: str) -> Table:
        table = filled(catalog, _A, _B, name=name, spec=BY_PART)
        with table.update_schema() as update:
            update.rename_column("text", "words")
            update.add_column("more", IntegerType())
        with table.update_spec() as spec:
            spec.add_field("id", BucketTransform(4), "bucket")
        rows = {
            "id": [21, 22, 2],
            "part": [3, 3, 3],
            "words": ["q", "r", "b too"],
            "more": [1, 2, 3],
        }
        kinds = pa.schema([("id", "int64"), ("part", "int64"), ("words", "str"), ("more", "int32")])
        ice.append(table, pa.table(rows, kinds))
        with table.update_schema() as update:
            update.update_column("more", LongType())
        first = next(path for path in data_file_paths(table) if "part=1" in path)
        commit_position_deletes(table, {first: [0]})
        return table

    return make


@pytest.mark.slow
@pytest.mark.parametrize("way", ["few", "many_tasks"])
def test_files_of_older_schemas_specs_and_with_deletes_are_merged_into(
    spark: Any, catalog: SqlCatalog, mode: str, way: str, request: pytest.FixtureRequest
) -> None:
    if way != "few":
        request.getfixturevalue(way)
    pair = _Pair(spark, _evolved(catalog))
    rows = pa.table(
        {"id": [1, 2, 22, 30], "words": ["A", "B", "R", "new"], "more": [10**10, 2, 3, 4]}
    )
    report = pair.merge(rows, on="id", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted, report.target_duplicates) == (3, 2, 1)


@pytest.mark.slow
def test_the_schema_evolves_in_the_same_commit_or_columns_are_discarded(
    spark: Any, catalog: SqlCatalog
) -> None:
    pair = _Pair(spark, _filled(catalog, _A, _B))
    rows = stream(_NEW, extra=pa.array([1.5, None, 2.5, 3.5]))
    with pytest.raises(ice.SchemaMismatchError, match="extra"):
        ice_spark.merge(_frame(spark, rows), pair.ours, on="id")
    assert pair.merge(rows, on="id", schema_mode="discard").columns_discarded == ("extra",)
    report = pair.merge(rows, on="id", schema_mode="evolve", write_mode="merge-on-read")
    assert report.schema_changes == ("add column 'extra' double",)
    assert report.rows_updated == 3


@pytest.mark.slow
def test_a_branch_a_load_id_and_what_is_empty(spark: Any, catalog: SqlCatalog) -> None:
    pair = _Pair(spark, _filled(catalog, _A))
    head = pair.ours.current_snapshot()
    pair.both(
        lambda t: (
            t.manage_snapshots().create_branch(t.current_snapshot().snapshot_id, "audit").commit()
        )
    )
    first = pair.merge(stream(_NEW), on="id", branch="audit", load_id="monday")
    assert rows_of(pair.ours) == _texts(_A)
    assert pair.ours.current_snapshot() == head
    unreadable = spark.range(1).select(sf.raise_error(sf.lit("was run")).cast("long").alias("id"))
    again = ice_spark.merge(unreadable, pair.ours, on="id", branch="audit", load_id="monday")
    assert again.already_committed
    assert (again.snapshot_id, again.rows_updated) == (first.snapshot_id, first.rows_updated)
    assert pair.merge(stream([]), "id long, part long, text string", on="id").snapshot_id is None
    empty = _Pair(spark, lambda name: filled(catalog, name=f"{name}_empty"))
    assert empty.merge(stream(_A), on="id").rows_inserted == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"on": None}, ice.InvalidArgumentError, "no identifier fields"),
        ({"on": "nope"}, ice.UnknownColumnError, "no column 'nope'"),
        ({"when_matched": "replace"}, ice.InvalidArgumentError, "when_matched"),
        ({"last_by": "part"}, ice.InvalidArgumentError, "on_duplicate='last'"),
        ({"update_columns": ["x"]}, ice.UnknownColumnError, "'x'"),
        ({"delete_when": "nope = 1"}, ice.InvalidArgumentError, "delete_when"),
        ({"schema_mode": "loose"}, ice.InvalidArgumentError, "schema_mode"),
        ({"branch": "nope"}, ice.InvalidArgumentError, "nope"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    spark: Any, catalog: SqlCatalog, options: Any, error: type[Exception], message: str
) -> None:
    table = filled(catalog, _A)
    before = listing(table)
    with pytest.raises(error, match=message):
        ice_spark.merge(_frame(spark, stream(_NEW)), table, **{"on": "id", **options})
    assert listing(table) == before


def test_columns_that_clash_or_have_no_type_are_refused(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog, _A)
    clashing = spark.sql("select 1L as id, 'x' as Text")
    with pytest.raises(ice.SchemaMismatchError, match="only by case"):
        ice_spark.merge(clashing, table, on="id", schema_mode="evolve")
    interval = spark.sql("select 1L as id, interval '1' year as part")
    with pytest.raises(ice.UnsupportedFeatureError, match="part"):
        ice_spark.merge(interval, table, on="id")


# What others do meanwhile, and what fails


@pytest.mark.slow
@pytest.mark.parametrize("when", ["running", "committing"])
def test_rows_that_others_change_meanwhile_refuse_it_and_others_do_not(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    table = filled(catalog, _A, _B)
    theirs = catalog.load_table("db.t")
    frame = _frame(spark, stream([(2, 5, "B"), (4, 6, "d")]))

    def merge(action: Callable[[], object], **options: Any) -> ice.MergeReport:
        if when == "committing":
            with before_commits(table.catalog, action):
                return ice_spark.merge(frame, table, on="id", **options)
        waiting = [action]

        def run(*arguments: Any) -> Any:
            waiting.pop()()
            return merge_job.run_merge(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(import_module("icestream.spark.verbs.merge_frame"), "run_merge", run)
            return ice_spark.merge(frame, table, on="id", **options)

    with pytest.raises(ice.CommitConflictError, match="added rows"):
        merge(lambda: ice.append(theirs, stream([(3, 9, "theirs")])))
    with pytest.raises(ice.CommitConflictError):
        merge(lambda: ice.delete(theirs, "id = 1"), write_mode="merge-on-read")
    assert rows_of(table) == _texts([*_A[1:], (3, 9, "theirs"), *_B])
    report = merge(lambda: ice.append(theirs, stream([(99, 9, "theirs")])))
    assert report.commit_attempts == (2 if when == "committing" else 1)
    expected = [(2, 5, "B"), (3, 1, "c"), (3, 9, "theirs"), (4, 6, "d"), *_B, (99, 9, "theirs")]
    assert rows_of(table) == _texts(expected)
    assert not [name for name in listing(table) if "in-flight" in name]


def test_updates_need_no_required_columns(spark: Any, catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "part", LongType(), required=True),
        NestedField(3, "text", StringType()),
    )
    table = catalog.create_table("db.strict", schema)
    ice.append(table, stream(_A).cast(schema_to_pyarrow(schema, include_field_ids=False)))
    frame = spark.createDataFrame([(2, "B"), (9, "none")], "id long, text string")
    report = ice_spark.merge(frame, table, on="id", when_not_matched="ignore")
    assert (report.rows_updated, report.rows_inserted) == (1, 0)
    assert rows_of(table) == _texts([(1, 1, "a"), (2, 1, "B"), (3, 1, "c")])


@pytest.mark.slow
@pytest.mark.usefixtures("many_tasks")
def test_a_frame_that_is_another_one_each_time_is_computed_once(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = filled(catalog, [(n, n, "old") for n in range(0, 60, 2)])
    frame = spark.range(0, 200, 1, 3).select(
        (sf.rand() * 60).cast("long").alias("id"),
        (sf.rand() * 1e9).cast("long").alias("part"),
        sf.lit("new").alias("text"),
    )
    report = ice_spark.merge(frame, table, on="id", on_duplicate="last")
    left = table.refresh().scan().to_arrow().to_pylist()
    assert len({row["id"] for row in left}) == len(left) == 30 + report.rows_inserted
    new = [row for row in left if row["text"] == "new"]
    assert len(new) == report.rows_inserted + report.rows_updated
    assert len(new) + report.rows_superseded == 200


def _fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise RuntimeError("no rows today")


def _damage(path: str, column: int) -> None:
    """Make a column of a Parquet file unreadable, and no other."""
    chunk = pq.read_metadata(path).row_group(0).column(column)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    with Path(path).open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * chunk.total_compressed_size)


@pytest.mark.slow
def test_a_merge_that_fails_for_good_leaves_nothing_behind(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog, _A, _B)
    before, rows = listing(table), stream(_NEW)
    failing = _frame(spark, rows).mapInArrow(_fail, "id long, part long, text string")
    with pytest.raises(ice.TaskFailedError, match="no rows today"):
        ice_spark.merge(failing, table, on="id")
    too_long = spark.sql("select 1L as id, cast(1e30 as decimal(38, 0)) as part, 'x' as text")
    with pytest.raises(ice.IcestreamError, match="part"):
        ice_spark.merge(too_long, table, on="id")
    # Keys can be read, and the last file's texts can't: other files are written by then.
    _damage(data_file_paths(table)[-1].removeprefix("file://"), column=2)
    with pytest.raises(ice.IcestreamError) as refusal:
        ice_spark.merge(_frame(spark, stream([(2, 5, "B"), (12, 1, "L")])), table, on="id")
    assert ".parquet" in str(refusal.value)
    assert listing(table) == before
    assert len(snapshots_of(table)) == 2


def test_what_is_known_of_many_files_is_on_the_account(
    running_spark: Any, catalog: SqlCatalog
) -> None:
    rows = wide_rows(3)
    table = catalog.create_table("db.many", rows.schema, properties={"format-version": "2"})
    ice.append(table, rows)
    table = add_many_files(table, 2_500, linked=False)
    before = listing(table)
    keys = running_spark.createDataFrame([(0, 0, 0), (2**62, 0, 0)], "c0 long, c1 long, c2 long")
    with pytest.raises(ice.MemoryBudgetError, match="memory limit is 1 MB"):
        ice_spark.merge(keys, table, on="c0", memory="1MB")
    assert listing(table) == before
