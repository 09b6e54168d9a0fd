"""A sample of the rows shows in how many partitions and files they end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.routes import route_of, write_days

pytestmark = pytest.mark.usefixtures("small_sizes")


def test_rows_in_order_of_their_partitions_need_no_shuffle(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = write_days(tmp_path / "a", lambda n: n // 200)
    route = route_of(catalog, folder, partition_by="day")
    assert route.is_direct
    assert len(route.shares) == 4, "160 small partitions, which a shuffle would not make larger"


def test_scattered_rows_are_not_shuffled_if_files_are_large_enough(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = write_days(tmp_path / "a", lambda n: n % 10)
    route = route_of(catalog, folder, partition_by="day")
    assert len(route.shares) == 2, "one for each core, so that files are larger"
    assert "2 tasks write about 20 files for 10 partitions" in route.reason


def test_scattered_rows_are_shuffled_if_files_would_be_small_or_many(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = write_days(tmp_path / "a", lambda n: n % 500)
    route = route_of(catalog, folder, partition_by="day")
    assert not route.is_direct
    assert "2 tasks would write about 1,000 files for 500 partitions" in route.reason
    many = write_days(tmp_path / "b", lambda n: (n * 7919) % 20_011)
    assert not route_of(catalog, many, partition_by="day").is_direct, "the sample has few twice"
    few = write_days(tmp_path / "c", lambda n: n % 3)
    assert route_of(catalog, few, partition_by="day", cores=8).is_direct
    assert not route_of(catalog, few, partition_by="day", cores=16).is_direct, "16 times as many"
