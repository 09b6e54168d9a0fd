"""A folder as a user has it: the local catalog, `shop.orders`, some files, and a pipeline."""

from __future__ import annotations

import datetime as dt
import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.catalogs.lookup import make_local_catalog
from icestream.cli.main import cli

Run = Callable[..., Result]
ROWS = 1800
_PIPELINE = """
defaults: {engine: local}
loads:
  orders: {source: changes.csv, into: shop.orders, mode: merge, keys: id}
  daily: {source: "table:shop.orders", into: shop.daily, mode: replace}
"""


def order_rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "price": pa.array([number * 0.5 for number in numbers], pa.float64()),
            "country": ["SE" if number % 3 == 0 else "NO" for number in numbers],
            "day": [dt.date(2026, 11, 1 + number % 20) for number in numbers],
        }
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and nothing configured."""
    for name in os.environ:
        if name.startswith("PYICEBERG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def catalog(folder: Path) -> Iterator[Catalog]:
    catalog = make_local_catalog()
    catalog.create_namespace("shop")
    yield catalog
    catalog.close()


@pytest.fixture
def orders(catalog: Catalog, folder: Path) -> Table:
    """1,800 rows in three files, and `changes.csv` with a row that is new and one that is not."""
    table = catalog.create_table("shop.orders", order_rows(0, 1).schema)
    for start in (0, 600, 1200):
        ice.append(table, order_rows(start, 600))
    (folder / "changes.csv").write_text("id,price\n1,99.5\n5000,7.25\n")
    for name in ("data/orders", "logs"):
        (folder / name).mkdir(parents=True)
    pq.write_table(order_rows(5000, 10), folder / "data" / "orders" / "1.parquet")
    (folder / "logs" / "1.json.gz").write_bytes(gzip.compress(b'{"id": 1}\n'))
    (folder / "pipeline.yaml").write_text(_PIPELINE)
    return table


@pytest.fixture
def run() -> Run:
    """Run a command in this process."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments))

    return invoke
