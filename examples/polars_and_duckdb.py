"""Hand a scan over to Polars and DuckDB, and write their results back.

    pip install 'icestream[peers]'
    python examples/polars_and_duckdb.py

A scan is an Arrow stream. Both engines take it without a copy on disk, and `append` takes theirs.
"""

from __future__ import annotations

import tempfile

import duckdb
import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice


def main() -> None:
    """Group a table in both engines, and append what DuckDB found."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        rows = pa.table(
            {"region": ["north", "south"] * 50_000, "price": [n % 10 for n in range(100_000)]}
        )
        orders = catalog.create_table("sales.orders", rows.schema)
        ice.append(orders, rows)

        # Polars collects the rows: select the columns and rows that it needs.
        frame = pl.DataFrame(ice.scan(orders, where="price > 5", memory="32MB"))
        for region, count in frame.group_by("region").len().sort("region").rows():
            print(f"Polars: {region} {count}")

        # DuckDB reads batch by batch, so that the table may be larger than the memory.
        stream = ice.scan(orders, memory="32MB").to_reader()  # noqa: F841  # read by the query
        query = "SELECT region, sum(price)::BIGINT AS total FROM stream GROUP BY region"
        with duckdb.connect() as connection:
            totals = catalog.create_table(
                "sales.totals", pa.schema([("region", pa.string()), ("total", pa.int64())])
            )
            ice.append(totals, connection.sql(query))
        for row in ice.scan(totals).to_reader().read_all().sort_by("region").to_pylist():
            print(f"DuckDB: {row['region']} {row['total']}")
        catalog.close()


if __name__ == "__main__":
    main()
