"""Rows in Spark that know their file, position, partition and spec."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from tests.support.delete_files import commit_position_deletes
from tests.support.spark_format import format_reader
from tests.support.tables import add_parquet_file, data_file_paths


@pytest.mark.slow
def test_metadata_columns_follow_the_columns_and_can_be_queried(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    rows = pa.table({"id": range(1000), "s": ["a"] * 1000})
    add_parquet_file(table, rows, row_group_rows=60, compression="none")
    [path] = data_file_paths(table)
    commit_position_deletes(table, {path: [0, 70, 999]})
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "part")
    ice.append(table, pa.table({"id": range(1000, 1003), "s": ["b"] * 3}))

    names = ["_file", "_pos", "_spec_id", "_partition"]
    frame = ice_spark.read(
        spark, table, columns=["id"], metadata_columns=names, where="id > 50", split_size="2kB"
    )
    assert frame.schema.simpleString() == (
        "struct<id:bigint,_file:string,_pos:bigint,_spec_id:int,_partition:struct<part:string>>"
    )
    found = frame.collect()
    assert [row.id for row in sorted(found)] == [
        *(i for i in range(51, 999) if i != 70), *range(1000, 1003)
    ]  # fmt: skip
    ids = {p: pq.read_table(p.removeprefix("file://"))["id"] for p in data_file_paths(table)}
    assert all(ids[row._file][row._pos].as_py() == row.id for row in found)
    assert {(row._spec_id, row._partition.part) for row in found} == {(0, None), (1, "b")}

    reader = format_reader(spark, catalog).option("metadata-columns", "_pos,_file")
    by_option = reader.option("push-filters", "true").load("db.t")
    last = by_option.filter("id > 990 and _pos >= 997").select("id", "_pos")
    assert sorted(map(tuple, last.collect())) == [(997, 997), (998, 998)]
    counts = ice_spark.read(spark, table, columns=["id"], metadata_columns=["_file"])
    assert counts.groupBy("_file").agg(sf.count("*")).count() == 2
