"""A table's name becomes the table: what `icestream.catalogs` has, under its name on Spark."""

from icestream.catalogs import load_table, open_catalog

__all__ = ["load_table", "open_catalog"]
