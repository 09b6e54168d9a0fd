"""Read one table with several processes, each inside a limit of its own.

    python examples/parallel_processes.py

`Scan.splits` cuts the plan into parts that can be pickled. A worker needs neither the catalog nor
its password: `read_splits` reads from the files alone.
"""

from __future__ import annotations

import multiprocessing
import tempfile

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice

FILES, FILE_ROWS = 4, 10_000


def total_of(split: ice.Split) -> int:
    """Add up the prices of one split; runs in a worker."""
    return sum(pc.sum(batch["price"]).as_py() for batch in ice.read_splits([split], memory="16MB"))


def main() -> None:
    """Write a table of several files, and share them out."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        table = catalog.create_table("sales.orders", pa.schema([("price", pa.int64())]))
        for _ in range(FILES):
            ice.append(table, pa.table({"price": range(FILE_ROWS)}))

        splits = ice.scan(table, columns=["price"]).splits()
        # A forked process would share the threads and locks of this one.
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            totals = pool.map(total_of, splits)
        print(f"splits: {len(splits)}")
        print(f"total price: {sum(totals)}")
        catalog.close()


if __name__ == "__main__":
    main()
