"""Look after a table: what is it made of, rewrite small files, find files that nothing refers to.

    python examples/table_upkeep.py

Many small appends make many small files, which are slow to plan and to read.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice


def main() -> None:
    """Append ten small files, compact them, and find a file that somebody left behind."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        table = catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]))
        for number in range(10):
            ice.append(table, pa.table({"id": range(number * 1000, (number + 1) * 1000)}))

        health = ice.health(table)
        print(f"files before: {health.files}, small: {health.small_files}")
        for advice in health.advice:
            print(f"advice: {advice}")

        report = ice.compact(table, memory="64MB")
        print(f"compacted: {report.files_removed} files into {report.files_added}")
        print(f"files after: {ice.health(table).files}")

        Path(table.location().removeprefix("file://"), "data", "left-behind.parquet").touch()
        # Zero is for tables that nobody else writes to. The default is three days.
        orphans = ice.orphans(table, older_than=timedelta(0), delete=True)
        print(f"orphans deleted: {[Path(file.path).name for file in orphans.files]}")
        catalog.close()


if __name__ == "__main__":
    main()
