"""What the suite needs of an engine: the same calls, rows as Arrow, the library's own reports."""

from __future__ import annotations

from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.arrow.types import spark_schema
from tests.support.spark_process import SparkProcess


class Engine(Protocol):
    """Reads and writes tables by their names; options are those of the library's functions."""

    def read(self, catalog: SqlCatalog, table: str, **options: Any) -> pa.Table:
        """The rows of a table."""
        ...

    def write(
        self, verb: str, catalog: SqlCatalog, table: str, rows: pa.Table, **options: Any
    ) -> Any:
        """`append`, `overwrite` or `merge` rows; returns the report."""
        ...


class InProcess:
    """The library itself."""

    def read(self, catalog: SqlCatalog, table: str, **options: Any) -> pa.Table:
        with ice.scan(catalog.load_table(table), **options) as batches:
            return pa.table(batches)

    def write(
        self, verb: str, catalog: SqlCatalog, table: str, rows: pa.Table, **options: Any
    ) -> Any:
        return getattr(ice, verb)(catalog.load_table(table), rows, **options)


class OnSpark:
    """A session in another process."""

    def __init__(self, process: SparkProcess) -> None:
        self._process = process

    def read(self, catalog: SqlCatalog, table: str, **options: Any) -> pa.Table:
        return self._process.call(_read, dict(catalog.properties), table, options)

    def write(
        self, verb: str, catalog: SqlCatalog, table: str, rows: pa.Table, **options: Any
    ) -> Any:
        return self._process.call(_write, verb, dict(catalog.properties), table, rows, options)


def opened(properties: dict[str, str]) -> SqlCatalog:
    """The catalog, in another process."""
    return SqlCatalog("tests", **{**properties, "init_catalog_tables": "false"})


def _read(spark: Any, properties: dict[str, str], table: str, options: dict[str, Any]) -> pa.Table:
    catalog = opened(properties)
    try:
        return ice_spark.read(spark, table, catalog=catalog, **options).toArrow()
    finally:
        catalog.close()


def _write(
    spark: Any,
    verb: str,
    properties: dict[str, str],
    table: str,
    rows: pa.Table,
    options: dict[str, Any],
) -> Any:
    frame = spark.createDataFrame(rows, spark_schema(rows.schema, table="rows")).repartition(3)
    catalog = opened(properties)
    try:
        return getattr(ice_spark, verb)(frame, table, catalog=catalog, **options)
    finally:
        catalog.close()
