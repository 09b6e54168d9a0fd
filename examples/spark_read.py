"""Read an Iceberg table on Spark, with nothing but `pip install 'icestream[spark]'`.

    python examples/spark_read.py

Spark runs on this machine; Java comes from the machine or from pip. Each task reads inside the
memory limit that the session names.
"""

from __future__ import annotations

import tempfile

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream.spark as ice_spark


def main() -> None:
    """Make a small table, and total it by region."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        rows = pa.table(
            {
                "id": range(100_000),
                "region": ["north", "south", "east", "west"] * 25_000,
                "price": [n % 1000 / 10 for n in range(100_000)],
            }
        )
        catalog.create_table("sales.orders", rows.schema).append(rows)

        spark = ice_spark.session(memory="64MB")
        try:
            # Without catalog=, the name is looked up in PyIceberg's own configuration.
            orders = ice_spark.read(
                spark,
                "sales.orders",
                catalog=catalog,
                where="price >= 50",
                columns=["region", "price"],
            )
            totals = orders.groupBy("region").sum("price").orderBy("region")
            for region, total in totals.collect():
                print(f"{region:6} {total:12,.1f}")
        finally:
            spark.stop()
            catalog.close()


if __name__ == "__main__":
    main()
