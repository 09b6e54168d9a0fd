"""Spark's plans and UI name the table, the columns and the filter."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream.spark as ice_spark
from tests.support.spark_orders import ORDERS, orders


def _descriptions(spark: Any) -> list[str]:
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    options = [jobs.apply(number).description() for number in range(jobs.size())]
    return [option.get() for option in options if option.isDefined()]


def test_the_plan_of_a_read_names_table_columns_and_filter(
    spark: Any, catalog: SqlCatalog, capsys: pytest.CaptureFixture[str]
) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    ice_spark.append(orders(spark, 10), table)
    frame = ice_spark.read(spark, table, columns=["id", "price"], where="id > 3")
    frame.explain()
    assert "icestream read db.orders (id, price) where id > 3" in capsys.readouterr().out
    assert frame.count() == 6


def test_jobs_are_described_and_the_callers_description_comes_back(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    context = spark.sparkContext
    ice_spark.append(orders(spark, 10), table)
    assert context.getLocalProperty("spark.job.description") is None
    context.setJobDescription("nightly")
    try:
        ice_spark.merge(orders(spark, 10), table, on="id")
        assert context.getLocalProperty("spark.job.description") == "nightly"
    finally:
        context.setLocalProperty("spark.job.description", None)
    shown = _descriptions(spark)
    assert any(each.endswith("icestream append to db.orders") for each in shown)
    assert any(each == "nightly: icestream merge into db.orders" for each in shown)
