"""pandas, Polars and DuckDB take a scan as it is, and what they stream stays inside the limit."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.data_files import write_parquet_file
from tests.support.tables import commit_files

_FILES, _FILE_ROWS = 4, 100_000
_ROWS = _FILES * _FILE_ROWS
_LIMIT = 32_000_000


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """About 58 MB of Arrow data, more than the limit."""
    from tests.support.tables import make_catalog

    catalog: SqlCatalog = make_catalog(tmp_path_factory.mktemp("frames"))
    schema = pa.schema([("id", pa.int64()), ("country", pa.string()), ("text", pa.string())])
    table = catalog.create_table("db.orders", schema)
    written = []
    for number in range(_FILES):
        ids = list(range(number * _FILE_ROWS, (number + 1) * _FILE_ROWS))
        rows = {
            "id": ids,
            "country": [("NO", "SE", "DK")[i % 3] for i in ids],
            "text": [f"{i:>100}" for i in ids],
        }
        written.append(
            write_parquet_file(table, pa.table(rows, schema=schema), row_group_rows=20_000)
        )
    commit_files(table, written)
    catalog.close()
    return table


def test_duckdb_aggregates_over_a_scan_inside_the_limit(table: Table) -> None:
    scan = ice.scan(table, memory=_LIMIT)
    with duckdb.connect() as connection:
        connection.register("orders", scan.to_reader())
        rows = connection.execute(
            "select country, count(*), max(length(text)) from orders group by 1 order by 1"
        ).fetchall()
    assert rows == [("DK", 133_333, 100), ("NO", 133_334, 100), ("SE", 133_333, 100)]
    assert scan.report.finished
    assert scan.report.bytes > 1.5 * _LIMIT
    assert scan.report.peak_bytes_held <= _LIMIT


def test_polars_takes_a_scan_by_arrows_stream(table: Table) -> None:
    scan = ice.scan(table, columns=["id", "country"], where="country = 'NO'", memory=_LIMIT)
    frame = pl.DataFrame(scan)
    assert frame["id"].to_list() == list(range(0, _ROWS, 3))
    assert scan.report.peak_bytes_held <= _LIMIT


def test_polars_adds_up_batch_by_batch_inside_the_limit(table: Table) -> None:
    scan = ice.scan(table, memory=_LIMIT)
    parts = [pl.from_arrow(batch).group_by("country").len() for batch in scan]
    totals = pl.concat(parts).group_by("country").sum().sort("country")
    assert totals["len"].to_list() == [133_333, 133_334, 133_333]
    assert scan.report.peak_bytes_held <= _LIMIT


def test_pandas_works_on_batches_inside_the_limit(table: Table) -> None:
    scan = ice.scan(table, memory=_LIMIT)
    counts = pd.Series(dtype="int64")
    for batch in scan:
        counts = counts.add(batch.to_pandas()["country"].value_counts(), fill_value=0)
    assert counts.astype(int).to_dict() == {"NO": 133_334, "SE": 133_333, "DK": 133_333}
    assert scan.report.peak_bytes_held <= _LIMIT


def test_pandas_takes_a_scan_that_fits_as_one_frame(table: Table) -> None:
    frame = ice.scan(table, columns=["id"], limit=1_000).to_reader().read_pandas()
    assert frame["id"].tolist() == list(range(1_000))
