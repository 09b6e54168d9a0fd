"""Name a table, and take its rows as a table, a data frame or a count inside a limit.

    pip install 'icestream[peers]' pandas
    python examples/whole_results.py

A result that does not fit the limit is refused, with the limit that is large enough.
"""

from __future__ import annotations

import asyncio
import tempfile

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice


async def count_north(catalog: SqlCatalog) -> int:
    """Count rows batch by batch, without blocking the event loop."""
    rows = 0
    async for batch in ice.scan("sales.orders", catalog=catalog, where="region = 'north'"):
        rows += batch.num_rows
    return rows


def main() -> None:
    """Read one table in several forms."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        rows = pa.table({"region": ["north", "south"] * 50_000, "price": range(100_000)})
        catalog.create_table("sales.orders", rows.schema)
        ice.append("sales.orders", rows, catalog=catalog)

        scan = ice.scan("sales.orders", catalog=catalog, where="price < 1000", memory="32MB")
        print("rows:", scan.count())
        print("first price:", scan.head(1)["price"][0])
        print("highest price:", scan.to_polars()["price"].max())
        print("by region:", scan.to_pandas().groupby("region")["price"].sum().to_dict())
        print("average:", scan.to_duckdb().aggregate("avg(price)").fetchall()[0][0])
        print("rows in the north:", asyncio.run(count_north(catalog)))

        try:
            ice.scan("sales.orders", catalog=catalog, memory="1MB").to_arrow()
        except ice.MemoryBudgetError as error:
            table = ice.scan("sales.orders", catalog=catalog, memory=error.needed_bytes).to_arrow()
            print("rows with the limit that the error names:", table.num_rows)
        catalog.close()


if __name__ == "__main__":
    main()
