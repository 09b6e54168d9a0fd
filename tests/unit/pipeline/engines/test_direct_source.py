"""Sources that tasks read themselves, and those whose rows must pass through Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.routes import route_of, write_days

pytestmark = pytest.mark.usefixtures("small_sizes")


def test_small_sources_are_one_task_whatever_the_table_is(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folder = write_days(tmp_path / "a", lambda n: n % 50)
    route = route_of(catalog, folder, partition_by="day", sort_by="id")
    assert len(route.shares) == 1
    assert route.reason == "one task reads and writes all rows"


@pytest.mark.parametrize("options", [{}, {"mode": "merge", "keys": "id"}], ids=["append", "merge"])
def test_what_spark_computes_passes_through_it(
    catalog: SqlCatalog, tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = write_days(tmp_path / "a", lambda n: 0)
    route = route_of(catalog, folder, transform="SELECT * FROM source", **options)
    assert not route.is_direct
    assert "transform" in route.reason


def test_sources_whose_columns_spark_unites_pass_through_it(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ID": [1]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": [1.5]}), tmp_path / "c.parquet")
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    assert not route_of(catalog, [a, b]).is_direct
    assert not route_of(catalog, [a, c]).is_direct
    assert not route_of(catalog, [a, pa.table({"id": [2]})]).is_direct
    assert route_of(catalog, [a, a]).is_direct
