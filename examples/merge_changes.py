"""Update, insert and delete rows by key: a change feed merged into a table.

    python examples/merge_changes.py

The merge is one snapshot. It rewrites only the files whose rows really change.
"""

from __future__ import annotations

import tempfile

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice


def main() -> None:
    """Merge a feed with two updates (one of them outdated), an insert and a delete."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("shop")
        orders = pa.table({"id": [1, 2, 3], "status": ["placed", "placed", "placed"]})
        table = catalog.create_table("shop.orders", orders.schema)
        ice.append(table, orders)

        feed = pa.table(
            {
                "id": [1, 1, 3, 4],
                "status": ["shipped", "paid", "placed", "placed"],
                "changed_at": [12, 11, 15, 14],
                "op": ["U", "U", "D", "I"],
            }
        )
        report = ice.merge(
            table,
            feed,
            on="id",
            delete_when="op = 'D'",
            on_duplicate="last",
            last_by="changed_at",
            update_columns=["status"],
            schema_mode="discard",  # The table has neither `op` nor `changed_at`.
            memory="64MB",
        )
        print(f"updated: {report.rows_updated}")
        print(f"inserted: {report.rows_inserted}")
        print(f"deleted: {report.rows_deleted}")
        for row in ice.scan(table).to_reader().read_all().sort_by("id").to_pylist():
            print(f"order {row['id']}: {row['status']}")
        catalog.close()


if __name__ == "__main__":
    main()
