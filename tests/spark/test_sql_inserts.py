"""INSERT, time travel and metadata tables of `ice_spark.sql`."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

import icestream
import icestream.spark as ice_spark

SALES = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "price", DoubleType()),
    NestedField(4, "cost", DecimalType(10, 2)),
    NestedField(5, "day", DateType()),
)
BY_REGION = PartitionSpec(
    PartitionField(2, 1000, IdentityTransform(), "region"),
    PartitionField(5, 1001, DayTransform(), "day_day"),
)


@pytest.fixture
def sales(catalog: SqlCatalog) -> Table:
    return catalog.create_table("db.sales", SALES, partition_spec=BY_REGION)


def _rows(table: Table) -> list[tuple[Any, ...]]:
    rows = table.refresh().scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=lambda row: row[0])


def test_values_are_cast_to_the_columns_of_the_table(
    spark: Any, catalog: SqlCatalog, sales: Table
) -> None:
    report = ice_spark.sql(
        "INSERT INTO db.sales VALUES (1, 'north', 2, 3, DATE '2026-01-01'), "
        "(2L, NULL, 1.5, 2.255, NULL)",
        spark=spark,
        catalog=catalog,
    )
    assert report.rows_inserted == 2
    assert _rows(sales) == [
        (1, "north", 2.0, Decimal("3.00"), date(2026, 1, 1)),
        (2, None, 1.5, Decimal("2.26"), None),
    ]


def test_listed_columns_are_set_and_others_are_null(
    spark: Any, catalog: SqlCatalog, sales: Table
) -> None:
    def run(text: str) -> Any:
        return ice_spark.sql(text, spark=spark, catalog=catalog)

    run("INSERT INTO db.sales (PRICE, id) SELECT id / 4, id FROM range(2)")
    run("INSERT INTO db.sales BY NAME SELECT 'east' AS region, 5 AS id")
    run("WITH more AS (SELECT 7 AS x) INSERT INTO TABLE db.sales (id) SELECT x FROM more")
    run("INSERT INTO db.sales (id, region) SELECT max(id) + 1, concat('a', 'b') FROM db.sales")
    run("INSERT INTO db.sales (id) (SELECT 9)")
    assert _rows(sales) == [
        (0, None, 0.0, None, None),
        (1, None, 0.25, None, None),
        (5, "east", None, None, None),
        (7, None, None, None, None),
        (8, "ab", None, None, None),
        (9, None, None, None, None),
    ]


def test_an_overwrite_replaces_the_table_or_partitions(
    spark: Any, catalog: SqlCatalog, sales: Table
) -> None:
    def run(text: str) -> Any:
        return ice_spark.sql(text, spark=spark, catalog=catalog)

    def regions() -> list[tuple[Any, ...]]:
        return [row[:2] for row in _rows(sales)]

    run("INSERT INTO db.sales (id, region) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    run("INSERT OVERWRITE db.sales PARTITION (region = 'b') SELECT 4, 1.0, 2, NULL")
    assert regions() == [(1, "a"), (3, "c"), (4, "b")]
    run("INSERT INTO db.sales PARTITION (region = 'b') (id) VALUES (5)")
    assert regions() == [(1, "a"), (3, "c"), (4, "b"), (5, "b")]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        run("INSERT OVERWRITE TABLE db.sales (id, region) VALUES (6, 'a')")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert regions() == [(3, "c"), (4, "b"), (5, "b"), (6, "a")]
    run("INSERT OVERWRITE db.sales SELECT * FROM db.sales WHERE id < 5")
    assert regions() == [(3, "c"), (4, "b")]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("INSERT INTO db.sales VALUES (1, 'x')", icestream.SchemaMismatchError, "5 columns"),
        ("INSERT INTO db.sales (id) VALUES ('1')", icestream.SchemaMismatchError, "'id' is bigint"),
        ("INSERT INTO db.sales (id, x) VALUES (1, 2)", icestream.UnknownColumnError, "'x'"),
        ("INSERT INTO db.sales (id, ID) VALUES (1, 2)", icestream.InvalidArgumentError, "twice"),
        ("INSERT INTO sales VALUES (1)", icestream.InvalidArgumentError, "include the namespace"),
        ("INSERT INTO db.none VALUES (1)", icestream.CatalogError, "no table"),
        ("INSERT OVERWRITE db.sales PARTITION (id = 1) SELECT 1", icestream.InvalidArgumentError,
         "not partitioned by the values of 'id'"),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", icestream.InvalidArgumentError, "DIRECTORY"),
        ("INSERT INTO db.sales REPLACE WHERE id = 1 SELECT 1", icestream.InvalidArgumentError,
         "REPLACE"),
        ("INSERT INTO db.sales.snapshots SELECT 1", icestream.InvalidArgumentError,
         "can only be read"),
        ("INSERT INTO db.sales (id) VALUES (NULL)", icestream.InvalidDataError, "id"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused(
    spark: Any, catalog: SqlCatalog, sales: Table, text: str, kind: Any, message: str
) -> None:
    with pytest.raises(kind, match=message):
        ice_spark.sql(text, spark=spark, catalog=catalog)
    assert sales.refresh().current_snapshot() is None


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_number_that_does_not_fit_is_never_stored(
    spark: Any, catalog: SqlCatalog, ansi: str
) -> None:
    table = catalog.create_table("db.small", Schema(NestedField(1, "n", IntegerType())))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(icestream.TaskFailedError, match="CAST_OVERFLOW"):
            ice_spark.sql(
                "INSERT INTO db.small SELECT id * 3000000000 FROM range(3)",
                spark=spark,
                catalog=catalog,
            )
        assert spark.conf.get("spark.sql.ansi.enabled") == ansi
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert table.refresh().current_snapshot() is None


@pytest.fixture
def versions(catalog: SqlCatalog) -> Table:
    """One row in the first version, which has a tag; two in the second; three in a branch."""
    table = catalog.create_table("db.v", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "first").commit()
    with table.update_schema() as update:
        update.rename_column("id", "key")
    table.append(pa.table({"key": [2]}))
    second = table.current_snapshot()
    assert second is not None
    table.manage_snapshots().create_branch(second.snapshot_id, "audit").commit()
    icestream.append(table, pa.table({"key": [3]}), branch="audit")
    return table


def test_versions_are_read_by_id_tag_branch_and_time(
    spark: Any, catalog: SqlCatalog, versions: Table
) -> None:
    def found(text: str) -> tuple[str, list[int]]:
        frame = ice_spark.sql(text, spark=spark, catalog=catalog)
        return frame.columns[0], sorted(row[0] for row in frame.collect())

    first, second = versions.history()
    moment = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC).isoformat()
    one, two, three = ("id", [1]), ("key", [1, 2]), ("key", [1, 2, 3])
    table = "SELECT * FROM db.v"
    assert found(table) == two
    assert found(f"{table} VERSION AS OF {first.snapshot_id}") == one
    assert found(f"{table} VERSION AS OF '{second.snapshot_id}' AS x") == two
    assert found(f"{table} FOR VERSION AS OF 'first' WHERE id > 0") == one
    assert found(f"{table} VERSION AS OF 'audit' x WHERE x.key > 0") == three
    assert found(f"{table} TIMESTAMP AS OF '{moment}'") == one
    assert found(f"{table} FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}' t WHERE t.id = 1") == one
    assert found(f"{table} TIMESTAMP AS OF current_timestamp() x") == two
    assert found("SELECT * FROM db.v.tag_first") == one
    assert found("SELECT * FROM db.v.branch_audit b WHERE b.key <> 0") == three
    assert found(f"SELECT * FROM db.v.snapshot_id_{first.snapshot_id}") == one
    assert found(f"SELECT * FROM db.v.at_timestamp_{first.timestamp_ms}") == one
    both = f"SELECT a.key FROM db.v a JOIN db.v VERSION AS OF {first.snapshot_id} b ON a.key = b.id"
    assert found(both) == ("key", [1])


def test_rows_are_inserted_into_a_branch(spark: Any, catalog: SqlCatalog, versions: Table) -> None:
    report = ice_spark.sql("INSERT INTO db.v.branch_audit VALUES (4)", spark=spark, catalog=catalog)
    assert versions.refresh().metadata.refs["audit"].snapshot_id == report.snapshot_id
    assert len(_rows(versions)) == 2
    with pytest.raises(icestream.InvalidArgumentError, match="can only be read"):
        ice_spark.sql("INSERT INTO db.v.tag_first VALUES (4)", spark=spark, catalog=catalog)


def test_metadata_tables_are_pyicebergs(spark: Any, catalog: SqlCatalog, versions: Table) -> None:
    def found(text: str) -> list[tuple[Any, ...]]:
        rows = ice_spark.sql(text, spark=spark, catalog=catalog).collect()
        return sorted(tuple(row) for row in rows)

    ids = sorted(snapshot.snapshot_id for snapshot in versions.snapshots())
    assert [row[0] for row in found("SELECT snapshot_id FROM db.v.snapshots")] == ids
    assert found("SELECT snapshot_id, is_current_ancestor FROM db.v.history") == sorted(
        (entry.snapshot_id, True) for entry in versions.history()
    )
    assert found("SELECT name, type FROM db.v.refs") == [
        ("audit", "BRANCH"), ("first", "TAG"), ("main", "BRANCH"),
    ]  # fmt: skip
    assert found("SELECT sum(record_count), count(*) FROM db.v.files f") == [(2, 2)]
    assert found("SELECT count(*) FROM db.v.manifests WHERE added_data_files_count > 0") == [(2,)]
    assert found("SELECT record_count, file_count FROM db.v.partitions") == [(2, 2)]
    kind = ice_spark.sql("SELECT * FROM db.v.snapshots", spark=spark, catalog=catalog).schema
    assert kind["committed_at"].dataType.simpleString() == "timestamp"


def test_a_metadata_table_that_is_too_large_is_refused(
    spark: Any, catalog: SqlCatalog, versions: Table
) -> None:
    with pytest.raises(icestream.MemoryBudgetError, match=r"db\.v\.files needs about"):
        ice_spark.sql("SELECT * FROM db.v.files", spark=spark, catalog=catalog, memory=1000)


@pytest.fixture
def parts(catalog: SqlCatalog) -> Table:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    new = catalog.create_table("db.parts", schema, partition_spec=spec)
    new.append(pa.table({"id": [1, 2], "p": ["y", "z"]}))
    return new


def test_a_dynamic_overwrite_empties_the_partition_that_the_statement_names(
    spark: Any, catalog: SqlCatalog, parts: Table
) -> None:
    plain = catalog.create_table("db.plain", pa.schema([("id", pa.int64())]))
    plain.append(pa.table({"id": [1, 2]}))
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        for text in (
            "INSERT OVERWRITE db.parts PARTITION (p = 'z') SELECT 1L WHERE false",
            "INSERT OVERWRITE db.plain VALUES (3)",
        ):
            ice_spark.sql(text, spark=spark, catalog=catalog)
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert _rows(parts) == [(1, "y")]
    assert _rows(plain) == [(3,)]


@pytest.mark.parametrize("rows", ["(id, p) VALUES (8, 'q')", "BY NAME SELECT 8 AS id, 'q' AS P"])
def test_a_column_is_not_both_in_partition_and_among_the_columns(
    spark: Any, catalog: SqlCatalog, parts: Table, rows: str
) -> None:
    with pytest.raises(icestream.InvalidArgumentError, match="'p' both in PARTITION and"):
        ice_spark.sql(
            f"INSERT INTO db.parts PARTITION (p = 'z') {rows}", spark=spark, catalog=catalog
        )
    assert _rows(parts) == [(1, "y"), (2, "z")]


def test_an_insert_by_name_does_not_exchange_the_fields_of_a_struct(
    spark: Any, catalog: SqlCatalog
) -> None:
    pair = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    table = catalog.create_table("db.pairs", pa.schema([("id", pa.int64()), ("pair", pair)]))

    def run(text: str) -> None:
        ice_spark.sql(f"INSERT INTO db.pairs {text}", spark=spark, catalog=catalog)

    run("BY NAME SELECT named_struct('a', 1L, 'b', 2L) AS pair, 1 AS id")
    with pytest.raises(icestream.SchemaMismatchError, match="'pair' is struct"):
        run("BY NAME SELECT named_struct('b', 20, 'a', 10) AS pair, 2 AS id")
    assert _rows(table) == [(1, {"a": 1, "b": 2})]


def test_an_insert_without_a_required_column_is_refused_in_the_words_of_sql(
    spark: Any, catalog: SqlCatalog, sales: Table
) -> None:
    with pytest.raises(icestream.SchemaMismatchError, match="a value for id: add it to the col"):
        ice_spark.sql(
            "INSERT INTO db.sales (region) VALUES ('north')", spark=spark, catalog=catalog
        )
    merge = (
        "MERGE INTO db.sales t USING (SELECT 'x' AS region) s ON t.region = s.region "
        "WHEN NOT MATCHED THEN INSERT (region) VALUES (s.region)"
    )
    with pytest.raises(icestream.SchemaMismatchError, match="a value for id: add it to the col"):
        ice_spark.sql(merge, spark=spark, catalog=catalog)
    assert _rows(sales) == []
