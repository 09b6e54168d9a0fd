"""A pipeline in a folder, with the files that it loads."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import ids_of, make_table

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}
TESTED = """
    name: shop
    defaults: {engine: local, memory: 32MB}
    loads:
      orders:
        source: orders.parquet
        into: db.orders
        tests:
          - unique: id
          - rows: {max: 100}
"""


class Shop:
    """A folder with a pipeline and its files, and a catalog."""

    def __init__(self, folder: Path, catalog: SqlCatalog) -> None:
        self.folder = folder
        self.catalog = catalog

    def write(self, text: str, **files: pa.Table) -> None:
        (self.folder / "pipeline.yaml").write_text(dedent(text))
        for name, rows in files.items():
            pq.write_table(rows, self.folder / f"{name}.parquet")

    def run(self, **options: Any) -> ice.RunReport:
        return ice.run(
            self.folder / "pipeline.yaml",
            catalog=self.catalog,
            state=self.folder / "state",
            **options,
        )

    def table(self, name: str) -> Table:
        return self.catalog.load_table(name)

    def make(self, name: str) -> Table:
        return make_table(self.catalog, name, **_QUICK)

    def ids(self, name: str, branch: str | None = None) -> list[int]:
        return ids_of(self.table(name), branch=branch)


def statuses(report: ice.RunReport) -> dict[str, str]:
    return {outcome.load: outcome.status for outcome in report.loads}
