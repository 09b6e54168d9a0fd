"""`icestream scan` writes files inside its limit, in a fresh process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import icestream as ice
from icestream.catalogs.lookup import make_local_catalog
from tests.memory import measured_cli
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
_ROWS, _BATCHES = 100_000, 30


def _batches() -> Iterator[pa.RecordBatch]:
    random = np.random.default_rng(0)
    for _ in range(_BATCHES):
        yield pa.record_batch(
            {
                "a": random.random(_ROWS),
                "b": random.random(_ROWS),
                "text": pa.array(random.integers(0, 10**12, _ROWS)).cast(pa.string()),
            }
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 110 MB in memory."""
    folder = tmp_path_factory.mktemp("cli")
    with closing(make_local_catalog(folder)) as catalog:
        catalog.create_namespace("db")
        table = catalog.create_table("db.t", next(_batches()).schema)
        ice.append(table, _batches())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "out.parquet",
        pytest.param("out.json", marks=pytest.mark.soak),
        pytest.param("out.csv", marks=pytest.mark.soak),
        pytest.param("out.arrow", marks=pytest.mark.soak),
    ],
)
def test_a_scan_to_a_file_takes_no_more_than_its_limit(folder: Path, name: str) -> None:
    options = ("--memory", "32MB", "-o", name)
    report = run_in_fresh_process(
        measured_cli.scan, str(folder), *options, env={"HOME": str(folder)}
    )
    assert json.loads(report.result)["rows"] == _ROWS * _BATCHES
    assert report.peak_rss_growth_bytes <= (32 + 64) * _MB
