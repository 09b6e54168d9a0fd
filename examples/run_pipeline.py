"""Run the loads of a pipeline file, twice.

    python examples/run_pipeline.py

The loads are in `pipeline.yaml`, beside this file. A load is published only if its tests pass. The
second run finds one new file, and loads only that one. The SQL of the local engine needs DuckDB:
`pip install 'icestream[duckdb]'`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice

PIPELINE = Path(__file__).with_name("pipeline.yaml")


def main() -> None:
    """Load the orders of one day, and then those of the next."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        catalog = SqlCatalog(
            "example", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}"
        )
        orders = folder / "orders"
        orders.mkdir()
        for day, rows in {"2026-01-01": ("1,10", "2,20"), "2026-01-02": ("3,30",)}.items():
            lines = ["id,price,day", *(f"{row},{day}" for row in rows)]
            (orders / f"{day}.csv").write_text("\n".join(lines) + "\n")
            report = ice.run(
                PIPELINE, variables={"FOLDER": name}, catalog=catalog, state=folder / "state"
            )
            for outcome in report.loads:
                print(f"{day} {outcome.load}: {outcome.status}")

        daily = ice.scan(catalog.load_table("shop.daily")).to_reader().read_all().sort_by("day")
        for row in daily.to_pylist():
            print(f"{row['day']} revenue: {row['revenue']}")
        catalog.close()


if __name__ == "__main__":
    main()
