"""Spark's own reader for a catalog that no configuration knows of."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog


def format_reader(spark: Any, catalog: Catalog) -> Any:
    """`spark.read.format("icestream")` with the catalog's properties as options."""
    reader = spark.read.format("icestream").option("catalog", catalog.name)
    for name, value in catalog.properties.items():
        reader = reader.option(f"catalog.{name}", value)
    return reader
