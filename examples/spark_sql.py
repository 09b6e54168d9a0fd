"""Create, load, merge and query Iceberg tables with SQL on Spark, without a jar."""

from __future__ import annotations

import tempfile

from pyiceberg.catalog.sql import SqlCatalog

import icestream.spark as ice_spark


def main() -> None:
    """Make a table of orders, change it, and read two versions of it."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        spark = ice_spark.session(memory="64MB")

        def run(text: str):
            # Without catalog=, names are looked up in PyIceberg's own configuration.
            return ice_spark.sql(text, spark=spark, catalog=catalog)

        try:
            run(
                "CREATE TABLE sales.orders (id BIGINT NOT NULL, region STRING, price DOUBLE) "
                "PARTITIONED BY (region)"
            )
            first = run(
                "INSERT INTO sales.orders SELECT id, element_at(array('north', 'south'), "
                "CAST(id % 2 + 1 AS INT)), id / 10 FROM range(1000)"
            )
            print(f"inserted: {first.rows_inserted}")
            merged = run(
                "MERGE INTO sales.orders AS o USING (SELECT id, 0.0D AS price FROM range(990, 1010)"
                ") AS s ON o.id = s.id WHEN MATCHED THEN UPDATE SET price = s.price "
                "WHEN NOT MATCHED THEN INSERT (id, price) VALUES (s.id, s.price)"
            )
            print(f"updated: {merged.rows_updated}, inserted: {merged.rows_inserted}")
            for version in ("", f" VERSION AS OF {first.snapshot_id}"):
                [total] = run(f"SELECT count(*), max(price) FROM sales.orders{version}").collect()
                print(f"rows: {total[0]}, highest price: {total[1]}")
            operations = run("SELECT operation FROM sales.orders.snapshots").collect()
            print(f"snapshots: {len(operations)}")
        finally:
            spark.stop()
            catalog.close()


if __name__ == "__main__":
    main()
