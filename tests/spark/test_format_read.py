"""`spark.read.format("icestream")`: options in, the rows of `icestream.scan` out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.errors import PySparkException

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.errors import typed
from icestream.spark.setup.settings import MEMORY_SETTING
from tests.support.spark_format import format_reader
from tests.support.spark_stream import catalog_options
from tests.support.tables import add_parquet_file

SCHEMA = pa.schema([("id", pa.int64()), ("a,b", pa.string()), ("at", pa.time64("us"))])


def _rows(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    times = pa.array([None] * len(ids), pa.time64("us"))
    return pa.table({"id": ids, "a,b": [f"r{i}" for i in ids], "at": times}, schema=SCHEMA)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three snapshots of ten rows each; a tag on the first and a branch from the second."""
    table = catalog.create_table("db.t", SCHEMA)
    for start in (0, 10, 20):
        ice.append(table, _rows(start, start + 10))
        table.refresh()
        if start == 0:
            first = table.current_snapshot()
            assert first is not None
            table.manage_snapshots().create_tag(first.snapshot_id, "first").commit()
        if start == 10:
            second = table.current_snapshot()
            assert second is not None
            table.manage_snapshots().create_branch(second.snapshot_id, "second").commit()
    return table


def _ids(frame: Any) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_rows_are_those_of_the_snapshot_that_options_name(
    spark: Any, table: Table, catalog: SqlCatalog
) -> None:
    first, second, _ = (entry for entry in table.history())
    moment = datetime.fromtimestamp(second.timestamp_ms / 1000, UTC).isoformat()
    cases: dict[tuple[str, str], int] = {
        ("where", "id < 1000"): 30,
        ("Snapshot-ID", str(first.snapshot_id)): 10,
        ("as-of-timestamp", str(second.timestamp_ms)): 20,
        ("as-of-timestamp", moment): 20,
        ("tag", "first"): 10,
        ("branch", "second"): 20,
        ("where", "id >= 5 and id < 12"): 7,
    }
    reader = format_reader(spark, catalog).option("columns", "id")
    union = None
    for number, (name, value) in enumerate(cases):
        frame = format_reader(spark, catalog).option("columns", "id").option(name, value)
        read = frame.load("db.t").selectExpr(f"{number} as number", "id")
        union = read if union is None else union.union(read)
    assert union is not None
    found = dict.fromkeys(range(len(cases)), 0)
    for row in union.collect():
        found[row.number] += 1
    assert list(found.values()) == list(cases.values())
    assert reader.load("db.t").schema.simpleString() == "struct<id:bigint>"


@pytest.mark.slow
def test_a_frame_keeps_reading_the_state_that_it_was_made_of(
    spark: Any, table: Table, catalog: SqlCatalog
) -> None:
    frame = format_reader(spark, catalog).option("columns", "id").load("db.t")
    ice.append(table, _rows(30, 40))
    assert _ids(frame) == list(range(30))


@pytest.mark.slow
def test_filtering_a_frame_leaves_its_other_rows_for_other_queries(
    spark: Any, table: Table, catalog: SqlCatalog
) -> None:
    frame = format_reader(spark, catalog).option("columns", "id").load("db.t")
    assert _ids(frame.filter("id = 3")) == [3]
    assert _ids(frame.filter("id = 4").union(frame.filter("id = 25"))) == [4, 25]
    assert frame.count() == 30


@pytest.mark.slow
def test_spark_still_keeps_pushed_filters_for_other_queries_of_a_frame(
    spark: Any, table: Table, catalog: SqlCatalog
) -> None:
    """If this fails, Spark has fixed it, and `push-filters` may be on by default from then on."""
    reader = format_reader(spark, catalog).option("columns", "id")
    frame = reader.option("push-filters", "true").load("db.t")
    assert _ids(frame.filter("id = 3")) == [3]
    assert frame.count() == 1


@pytest.mark.slow
def test_a_schema_projects_and_sql_reads_too(spark: Any, table: Table, catalog: SqlCatalog) -> None:
    frame = format_reader(spark, catalog).schema("`a,b` string").load("db.t")
    assert frame.columns == ["a,b"]
    assert frame.count() == 30
    options = ", ".join(f"`catalog.{k}` '{v}'" for k, v in catalog.properties.items())
    spark.sql(
        "create or replace temporary view orders using icestream "
        f"options (path 'db.t', catalog 'tests', columns '\"a,b\", id', {options})"
    )
    assert spark.sql("select max(id), count(`a,b`) from orders").collect() == [(29, 30)]
    assert spark.sql("select * from orders limit 1").columns == ["a,b", "id"]
    with pytest.raises(PySparkException, match="schema is struct<id:int>, but"):
        format_reader(spark, catalog).option("columns", "id").schema("id int").load("db.t").count()


def test_split_size_says_what_a_task_reads(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.cut", pa.schema([("id", pa.int64())]))
    ids = pa.table({"id": np.random.default_rng(0).permutation(200_000)})
    add_parquet_file(table, ids, row_group_rows=10_000, compression="none")
    whole = ice_spark.read(spark, table, split_size="1GB")
    cut = ice_spark.read(spark, table, split_size="200kB")
    assert whole.rdd.getNumPartitions() == 1
    assert cut.rdd.getNumPartitions() > 5
    by_option = format_reader(spark, catalog).option("split-size", "200kB").load("db.cut")
    assert by_option.rdd.getNumPartitions() == cut.rdd.getNumPartitions()
    assert by_option.agg({"id": "sum"}).collect() == [(sum(range(200_000)),)]


def test_a_view_of_the_latest_rows_sees_its_own_insert(spark: Any, catalog: SqlCatalog) -> None:
    ice.append(catalog.create_table("db.v", pa.schema([("id", pa.int64())])), pa.table({"id": [1]}))
    options = ", ".join(f"`catalog.{k}` '{v}'" for k, v in catalog.properties.items())
    for name, latest in (("latest", "true"), ("pinned", "false")):
        spark.sql(
            f"create or replace temporary view {name} using icestream options "
            f"(path 'db.v', catalog 'tests', `read-latest` '{latest}', {options})"
        )
    try:
        spark.sql("insert into latest values (2)")
        assert _ids(spark.sql("select * from latest")) == [1, 2]
        assert _ids(spark.sql("select * from pinned")) == [1]
        assert _ids(ice_spark.sql("select * from latest where id > 1", spark=spark)) == [2]
    finally:
        spark.catalog.dropTempView("latest")
        spark.catalog.dropTempView("pinned")


def test_an_error_while_spark_plans_is_on_the_first_line(spark: Any, catalog: SqlCatalog) -> None:
    with pytest.raises(PySparkException) as caught:
        format_reader(spark, catalog).load("db.missing")
    assert "CatalogError: there is no table 'db.missing'" in str(caught.value).splitlines()[0]
    assert "Traceback" not in str(caught.value)
    assert type(typed(caught.value)) is ice.CatalogError


def test_an_error_while_a_write_is_planned_is_on_the_first_line(
    spark: Any, catalog: SqlCatalog
) -> None:
    writer = spark.range(1).write.format("icestream").options(**catalog_options(catalog))
    with pytest.raises(PySparkException) as caught:
        writer.mode("append").save("db.missing")
    assert "CatalogError: there is no table 'db.missing'" in str(caught.value).splitlines()[0]
    assert type(typed(caught.value)) is ice.CatalogError


@pytest.mark.parametrize("columns", ["", "(id BIGINT)"])
def test_a_table_of_spark_that_uses_the_format_says_what_to_use_instead(
    spark: Any, columns: str
) -> None:
    def use() -> None:
        try:
            spark.sql(f"create table using_icestream {columns} using icestream")
            spark.sql("select * from using_icestream").collect()
        finally:
            spark.sql("drop table if exists using_icestream")

    with pytest.raises(PySparkException, match="does not pass any name or option") as caught:
        use()
    assert type(typed(caught.value)) is ice.InvalidArgumentError


@pytest.mark.slow
def test_errors_say_ours_in_one_line(spark: Any, table: Table, catalog: SqlCatalog) -> None:
    reader = format_reader(spark, catalog)
    cases: list[tuple[Any, str, type[ice.IcestreamError], str]] = [
        (reader, "db.missing", ice.CatalogError, "there is no table 'db.missing' in catalog"),
        (
            format_reader(spark, catalog).option("colums", "id"),
            "db.t",
            ice.InvalidArgumentError,
            "has no option 'colums': the options are as-of-timestamp, branch, ",
        ),
        (
            format_reader(spark, catalog).option("columns", "idd"),
            "db.t",
            ice.UnknownColumnError,
            "did you mean 'id'?",
        ),
    ]
    for case, name, kind, message in cases:
        with pytest.raises(PySparkException) as caught:
            case.load(name)
        assert sum(message in line for line in str(caught.value).splitlines()) == 1
        found = typed(caught.value)
        assert type(found) is kind
        assert message in str(found)


@pytest.mark.slow
def test_an_error_of_a_task_is_ours_again_with_all_it_carries(
    spark: Any, table: Table, catalog: SqlCatalog
) -> None:
    frame = format_reader(spark, catalog).option("columns", "id").option("memory", "10")
    with pytest.raises(PySparkException) as caught:
        frame.load("db.t").count()
    found = typed(caught.value)
    assert isinstance(found, ice.MemoryBudgetError)
    assert found.limit_bytes == 10
    assert found.needed_bytes > 10


def test_registering_again_is_harmless_and_keeps_what_the_user_set(spark: Any) -> None:
    name = "spark.sql.redaction.options.regex"
    before = spark.conf.get(name)
    try:
        spark.conf.set(name, "mine")
        spark.conf.set(MEMORY_SETTING, "32MB")
        ice_spark.register(spark)
        ice_spark.register(spark)
        assert spark.conf.get(name) == "mine"
    finally:
        spark.conf.set(name, before)
