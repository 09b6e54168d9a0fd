"""Replace some partitions of a table, and leave the others alone.

    python examples/overwrite_partitions.py

A nightly job often computes whole days again. `partitions="dynamic"` replaces the partitions that
are present in the stream. `where=` replaces the rows that match a filter.
"""

from __future__ import annotations

import tempfile

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice


def main() -> None:
    """Load three days, and compute one of them again."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        catalog.create_namespace("sales")
        days = [f"2026-01-0{number}" for number in (1, 2, 3)]
        first = pa.table({"day": days, "revenue": [100, 200, 300]})
        table = catalog.create_table("sales.daily", first.schema)
        with table.update_spec() as spec:
            spec.add_identity("day")
        ice.append(table, first)
        show("first load", table)

        ice.overwrite(table, pa.table({"day": [days[1]], "revenue": [250]}), partitions="dynamic")
        show("2 January again", table)

        correction = pa.table({"day": [days[2]], "revenue": [350]})
        ice.overwrite(table, correction, where="revenue >= 300")
        show("high revenue again", table)
        catalog.close()


def show(label: str, table: Table) -> None:
    """Print the revenue of each day."""
    rows = ice.scan(table).to_reader().read_all().sort_by("day")
    print(f"{label}: {rows['revenue'].to_pylist()}")


if __name__ == "__main__":
    main()
