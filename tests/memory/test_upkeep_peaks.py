"""Upkeep stays inside its limit, in a fresh process."""

from __future__ import annotations

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
_MANY_FILES = 50_000
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


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 50,000 files and 30 columns, in several manifests, with a stray."""
    directory = tmp_path_factory.mktemp("many")
    catalog = make_catalog(directory)
    table = catalog.create_table("db.t", pa.schema([(f"c{n}", pa.int64()) for n in range(30)]))
    (written,) = ice.write_files(table, pa.table({f"c{n}": [n] for n in range(30)}))
    first = Path(written.path.removeprefix("file://"))
    (first.parent / "stray.parquet").write_bytes(b"stray")
    # Files need not exist: nothing but metadata is read.
    paths = (first.with_name(f"{first.stem}-{number}.parquet") for number in range(_MANY_FILES))
    ice.commit_files(table, [replace(written, path=f"file://{path}") for path in paths])
    catalog.close()
    return directory


@pytest.mark.slow
def test_looking_for_orphans_among_fifty_thousand_files_stays_inside_the_limit(
    many_files: Path,
) -> None:
    report = run_in_fresh_process(measured_upkeep.orphans, str(many_files), "64MB")
    assert report.result["count"] == 2
    assert report.result["files_referenced"] > _MANY_FILES
    assert report.peak_rss_growth_bytes <= 30 * _MB


@pytest.mark.slow
def test_the_health_of_fifty_thousand_files_stays_inside_the_limit(many_files: Path) -> None:
    report = run_in_fresh_process(measured_upkeep.health, str(many_files), "64MB")
    assert report.result == {"files": _MANY_FILES, "partitions": 1}
    assert report.peak_rss_growth_bytes <= 30 * _MB


@pytest.mark.slow
def test_looking_for_orphans_with_ten_thousand_strays_takes_little(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    (written,) = ice.write_files(table, pa.table({"id": [1]}))
    folder = Path(written.path.removeprefix("file://")).parent
    for number in range(10_000):
        (folder / f"stray-{number}.parquet").touch()
    ice.commit_files(table, [written])
    catalog.close()
    report = run_in_fresh_process(measured_upkeep.orphans, str(tmp_path), "4MB")
    assert report.result == {"count": 10_000, "files_referenced": 5}
    assert report.peak_rss_growth_bytes <= 20 * _MB
