"""Read a table batch by batch, inside a memory limit.

    python examples/scan_in_a_limit.py

The scan decodes the files in small steps. However large the table is, decoders and waiting batches
together hold at most 16 MB here.
"""

from __future__ import annotations

import tempfile

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice

ROWS = 500_000


def main() -> None:
    """Write a table, then add up one column of it."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        rows = pa.table({"id": range(ROWS), "price": [n % 100 for n in range(ROWS)]})
        table = catalog.create_table("sales.orders", rows.schema)
        table.append(rows)

        scan = ice.scan(table, where="price >= 50", columns=["price"], memory="16MB")
        total = 0
        for batch in scan:
            total += pc.sum(batch["price"]).as_py()

        report = scan.report
        print(f"total price: {total}")
        print(f"rows: {report.rows}")
        print(f"inside the limit: {report.peak_bytes_held <= report.memory_limit_bytes}")
        catalog.close()


if __name__ == "__main__":
    main()
