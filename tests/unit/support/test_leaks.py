"""`assert_no_leaks` sees what stays open, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.leaks import assert_no_leaks, live_threads, open_file_descriptors
from tests.support.tables import add_parquet_file, make_catalog


def test_an_open_file_is_a_leak(tmp_path: Path):
    path = tmp_path / "left-open"
    leaked = []
    with (
        pytest.raises(AssertionError, match="left-open"),
        assert_no_leaks(grace_seconds=0.05),
    ):
        leaked.append(path.open("w"))
    assert str(path) in open_file_descriptors().values()
    leaked.pop().close()
    assert str(path) not in open_file_descriptors().values()


def test_a_running_thread_is_a_leak():
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="lingering")
    with (
        pytest.raises(AssertionError, match="lingering"),
        assert_no_leaks(grace_seconds=0.05),
    ):
        thread.start()
    assert thread in live_threads()
    with assert_no_leaks(ignore_threads=("other",)):
        release.set()
    thread.join()


def test_what_goes_away_within_the_grace_is_no_leak():
    with assert_no_leaks(grace_seconds=5):
        threading.Timer(0.2, lambda: None).start()


def test_scans_and_arrow_threads_are_no_leaks(tmp_path: Path):
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    add_parquet_file(table, pa.table({"id": pa.array(range(1000), pa.int64())}))
    with assert_no_leaks():
        assert pc.sum(table.scan().to_arrow()["id"]).as_py() == 499500
    catalog.close()
