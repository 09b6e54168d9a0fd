"""Upkeep stays inside its limit, in a fresh process."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table

import icestream as ice
from tests.memory import measured_upkeep
from tests.support.process import run_in_fresh_process
from tests.support.tables import make_catalog

_MB = 1_000_000
_FILES, _FILE_ROWS = 12, 250_000
_SCHEMA = pa.schema(
    [("id", pa.int64()), ("part", pa.int64()), ("a", pa.float64()), ("text", pa.string())]
)


def _append(table: Table, number: int) -> None:
    ids = np.arange(number * _FILE_ROWS, (number + 1) * _FILE_ROWS)
    random = np.random.default_rng(number)
    columns = {
        "id": ids,
        "part": ids % 4,
        "a": random.random(_FILE_ROWS),
        "text": pa.array(ids % 10_007).cast(pa.string()),
    }
    ice.append(table, pa.table(columns, schema=_SCHEMA))


@pytest.mark.parametrize(
    "partitioned",
    [
        pytest.param(False, marks=pytest.mark.soak, id="unpartitioned"),
        pytest.param(True, id="partitioned"),
    ],
)
def test_a_compaction_takes_no_more_than_its_limit(tmp_path: Path, partitioned: bool) -> None:
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", _SCHEMA)
    if partitioned:
        with table.update_spec() as update:
            update.add_identity("part")
    for number in range(_FILES):
        _append(table, number)
    catalog.close()
    report = run_in_fresh_process(measured_upkeep.compact, str(tmp_path), "48MB", 16 * _MB)
    assert report.result["rows_rewritten"] == _FILES * _FILE_ROWS
    assert report.result["peak_bytes_held"] <= 48 * _MB
    assert report.peak_rss_growth_bytes <= (48 + 64) * _MB


def test_looking_for_orphans_among_ten_thousand_files_takes_little(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    (written,) = ice.write_files(table, pa.table({"id": [1]}))
    first = Path(written.path.removeprefix("file://"))
    paths = [first.with_name(f"{first.stem}-{number}.parquet") for number in range(10_000)]
    for path in paths:
        os.link(first, path)
    first.unlink()
    ice.commit_files(table, [replace(written, path=f"file://{path}") for path in paths])
    (first.parent / "stray.parquet").write_bytes(b"stray")
    catalog.close()
    report = run_in_fresh_process(measured_upkeep.orphans, str(tmp_path))
    assert report.result == {"count": 1, "files_referenced": 10_004}
    assert report.peak_rss_growth_bytes <= 30 * _MB
