"""A load that is killed and run again: the table is whole all the time, and exact in the end."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from tests.fault.killed_load import MOMENTS, load
from tests.support.load_cases import orders
from tests.support.process import REPOSITORY
from tests.support.tables import make_catalog


def _rows(catalog: Catalog) -> dict[int, float]:
    read = catalog.load_table("db.t").scan().to_arrow()
    assert read.num_rows == len(set(read.column("id").to_pylist()))
    return dict(zip(read.column("id").to_pylist(), read.column("price").to_pylist(), strict=True))


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(name, marks=() if number % 3 == 1 else pytest.mark.slow)
        for number, name in enumerate(MOMENTS)
    ],
)
def test_a_merge_that_is_killed_is_finished_by_the_next_run(
    tmp_path: Path, moment: str, when: str
) -> None:
    (tmp_path / "inbox").mkdir()
    pq.write_table(orders(0, 100), tmp_path / "inbox" / "1.parquet")
    load(tmp_path)
    before = {number: number * 0.5 for number in range(100)}
    changed = orders(90, 20, price=pa.array([7.0] * 20))
    pq.write_table(changed, tmp_path / "inbox" / "2.parquet")
    wanted = before | dict.fromkeys(range(90, 110), 7.0)

    command = [sys.executable, "-m", "tests.fault.killed_load", str(tmp_path), moment, when]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    catalog = make_catalog(tmp_path)
    try:
        assert _rows(catalog) in (before, wanted)
        load(tmp_path)
        assert _rows(catalog) == wanted
        load(tmp_path)
        table = catalog.load_table("db.t")
        assert len(table.metadata.snapshots) == 2
        ice.orphans(table, older_than=timedelta(0), delete=True)
        assert _rows(catalog) == wanted
        assert ice.orphans(table, older_than=timedelta(0)).files == ()
    finally:
        catalog.close()
