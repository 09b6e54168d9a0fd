"""A missing table is created with the first load, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.commit.new_table import NewTable
from tests.support.spark_orders import ORDERS, order_ids, orders, stored
from tests.support.spark_stream import catalog_options

TYPED = """
select true as flag, cast(1 as byte) as tiny, cast(2 as short) as small, 3 as whole,
    cast(4 as long) as big, cast(1.5 as float) as half, 2.5d as full, 12.34bd as exact,
    'text' as words, cast('c' as char(3)) as fixed_text, cast('v' as varchar(5)) as var_text,
    cast('ab' as binary) as bytes, date'2024-02-29' as day,
    timestamp_ntz'2024-02-29 01:02:03.000004' as local, timestamp_ltz'2024-02-29 01:02:03Z' as at,
    array(1, null) as several, map('k', 1.5d) as pairs,
    named_struct('a', 1, 'b', array(named_struct('c', 'x'))) as deep, null as nothing
"""


def test_a_table_is_created_from_the_frames_columns(spark: Any, catalog: SqlCatalog) -> None:
    report = ice_spark.append(
        orders(spark, 100),
        "db.orders",
        catalog=catalog,
        create=True,
        partition_by=["bucket(2, id)", "region"],
        sort_by=["price desc nulls last"],
        table_properties={"owner": "us"},
        properties={"by": "spark"},
        load_id="first",
    )
    table = catalog.load_table("db.orders")
    assert order_ids(table) == list(range(100))
    (snapshot,) = table.metadata.snapshots
    assert snapshot.snapshot_id == report.snapshot_id
    assert snapshot.summary["by"] == "spark"
    assert [f.name for f in table.schema().fields] == ["id", "region", "price"]
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[2]", "identity"]
    assert str(table.sort_order().fields[0]) == "3 DESC NULLS LAST"
    assert table.properties["owner"] == "us"
    assert report.rows_inserted == 100
    assert ice_spark.append(
        orders(spark, 9), "db.orders", catalog=catalog, create=True, load_id="first"
    ).already_committed


def test_a_table_that_is_there_is_appended_to(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    options = {"catalog": catalog, "create": True, "partition_by": ["region"]}
    ice_spark.append(orders(spark, 4), "db.orders", **options)
    ice_spark.append(orders(spark, 4, first=4), "db.orders", **options)
    assert order_ids(table) == list(range(8))
    assert table.spec().is_unpartitioned()


def test_types_are_kept_and_columns_without_one_are_left_out(
    spark: Any, catalog: SqlCatalog
) -> None:
    frame = spark.sql(TYPED)
    report = ice_spark.append(frame, "db.typed", catalog=catalog, create=True)
    assert report.columns_discarded == ("nothing",)
    types = {f.name: str(f.field_type) for f in catalog.load_table("db.typed").schema().fields}
    assert list(types.values())[:15] == [
        *("boolean", "int", "int", "int", "long", "float", "double", "decimal(4, 2)"),
        *("string", "string", "string", "binary", "date", "timestamp", "timestamptz"),
    ]
    back = ice_spark.read(spark, "db.typed", catalog=catalog)
    assert back.collect() == frame.drop("nothing").collect()


def test_an_empty_frame_creates_an_empty_table(spark: Any, catalog: SqlCatalog) -> None:
    nothing = orders(spark, 4).where("id < 0")
    report = ice_spark.overwrite(nothing, "db.orders", catalog=catalog, create=True)
    assert report.snapshot_id is None
    assert catalog.load_table("db.orders").metadata.snapshots == []


def test_a_load_that_fails_leaves_no_table_and_no_file(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    before = stored(tmp_path)
    frame = orders(spark, 100).withColumn(
        "price", sf.expr("if(id = 70, raise_error('bad row'), price)").cast("double")
    )
    with pytest.raises(ice.TaskFailedError, match="bad row"):
        ice_spark.append(frame, "db.orders", catalog=catalog, create=True)
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.orders")
    assert stored(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False])
def test_who_comes_second_appends_to_the_table_of_the_other(
    spark: Any,
    catalog: SqlCatalog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    same: bool,
) -> None:
    create = NewTable.create

    def create_after_another(self: NewTable, *arguments: Any) -> Any:
        monkeypatch.setattr(NewTable, "create", create)
        first = orders(spark, 10, tasks=1)
        frame = first if same else first.select("region", "price", sf.col("id").cast("int"))
        ice_spark.append(frame, "db.orders", catalog=catalog, create=True)
        return self.create(*arguments)

    monkeypatch.setattr(NewTable, "create", create_after_another)
    frame = orders(spark, 5, first=10)
    if not same:
        frame = frame.withColumn("id", sf.col("id").cast("int"))
    report = ice_spark.append(frame, "db.orders", catalog=catalog, create=True)
    table = catalog.load_table("db.orders")
    assert order_ids(table) == list(range(15))
    assert report.rows_inserted == 5
    named = {task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files()}
    left = {name.rpartition("/")[2] for name in stored(tmp_path)}
    assert {name for name in left if name.endswith(".parquet")} == named
    assert not [name for name in left if "in-flight" in name]
    assert len([name for name in left if name.startswith("snap-")]) == 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"partition_by": ["day(nowhere)"]}, "no column 'nowhere'"),
        ({"partition_by": ["week(id)"]}, "no transform"),
        ({"sort_by": ["region sideways"]}, "not understood"),
        ({"branch": "audit"}, "has no branch 'audit'"),
        ({"table_properties": {"format-version": "3"}}, "icestream writes 1 and 2"),
    ],
)
def test_what_makes_no_table_is_refused_before_anything_runs(
    spark: Any, catalog: SqlCatalog, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=problem):
        ice_spark.append(orders(spark, 4), "db.orders", catalog=catalog, create=True, **options)
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.orders")


def test_a_missing_namespace_or_table_is_said(spark: Any, catalog: SqlCatalog) -> None:
    with pytest.raises(ice.CatalogError, match="Create the namespace first"):
        ice_spark.append(orders(spark, 4), "nowhere.orders", catalog=catalog, create=True)
    with pytest.raises(ice.CatalogError, match=r"no table 'db\.orders'"):
        ice_spark.append(orders(spark, 4), "db.orders", catalog=catalog)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("select interval '1' day as a, 1 as b", "'a' (interval day)"),
        ("select interval '1' month as a", "'a' (interval month)"),
        ("select parse_json('1') as a, array(parse_json('2')) as b", "'a' (variant), 'b.element'"),
        ("select named_struct('x', interval '1' day) as s", "'s.x' (interval day)"),
    ],
)
def test_types_that_iceberg_lacks_are_refused_by_column(
    spark: Any, catalog: SqlCatalog, query: str, columns: str
) -> None:
    with pytest.raises(ice.UnsupportedFeatureError) as caught:
        ice_spark.append(spark.sql(query), "db.t", catalog=catalog, create=True)
    assert columns in str(caught.value)


def test_a_column_with_a_name_of_ours_is_refused(spark: Any, catalog: SqlCatalog) -> None:
    frame = spark.sql("select 1L as id, 2 as __ICESTREAM_LANE")
    with pytest.raises(ice.InvalidArgumentError, match=r"'__ICESTREAM_LANE'.*Rename the column"):
        ice_spark.append(frame, "db.t", catalog=catalog, create=True)
    with pytest.raises(ice.InvalidArgumentError, match=r"'__ICESTREAM_LANE'.*Rename the column"):
        ice_spark.merge(frame, "db.t", catalog=catalog, create=True, on="id")


@pytest.mark.slow
def test_columns_that_differ_by_case_or_not_at_all_are_refused(
    spark: Any, catalog: SqlCatalog
) -> None:
    options = {"catalog": catalog, "create": True}
    with pytest.raises(ice.SchemaMismatchError, match="'ID', 'id' differ only by case"):
        ice_spark.append(spark.sql("select 1 as id, 2 as ID"), "db.t", **options)
    with pytest.raises(ice.SchemaMismatchError, match="'id' is in the stream 2 times"):
        ice_spark.append(spark.sql("select 1 as id, 2 as id"), "db.t", **options)
    nested = spark.sql("select array(map(1, named_struct('a', 1, 'A', 2))) as s")
    with pytest.raises(ice.SchemaMismatchError, match=r"'s\.element\.value\.A', 's\..*\.a'"):
        ice_spark.append(nested, "db.t", **options)
    catalog.create_table("db.orders", ORDERS)
    with pytest.raises(ice.SchemaMismatchError, match="'ID', 'id' differ only by case"):
        ice_spark.append(
            spark.sql("select 1L as ID"), "db.orders", catalog=catalog, schema_mode="evolve"
        )
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        frame = spark.sql("select 1 as id, 2 as ID, named_struct('a', 1, 'A', 2) as s")
        ice_spark.append(frame, "db.t", **options)
        writer = frame.write.format("icestream").mode("append").option("create", "true")
        writer = writer.options(**catalog_options(catalog))
        with pytest.raises(Exception, match="the option case-sensitive"):
            writer.save("db.by_format")
        writer.option("case-sensitive", "true").save("db.by_format")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    for name in ("db.t", "db.by_format"):
        columns = ["id", "ID", "s.a", "s.A", "s"]
        assert catalog.load_table(name).schema().column_names == columns


def test_a_frame_of_nulls_alone_makes_no_table(spark: Any, catalog: SqlCatalog) -> None:
    with pytest.raises(ice.SchemaMismatchError, match=r"no column that table db\.t could be"):
        ice_spark.append(spark.sql("select null as a"), "db.t", catalog=catalog, create=True)
