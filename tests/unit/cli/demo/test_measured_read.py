"""The script that reads a table for the demo, and prints its memory meanwhile."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.cli.demo import measured_read


@pytest.mark.parametrize("engine", ["icestream", "pyiceberg"])
def test_samples_come_first_and_then_the_sums_of_the_rows(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    rows = pa.table({"order_id": range(100)})
    table = catalog.create_table("shop.t", rows.schema)
    ice.append(table, rows)
    measured_read.main(engine, table.metadata_location, "32MB")
    *samples, facts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert samples[0].keys() == {"seconds", "grown_bytes", "held_bytes", "rows"}
    assert (facts["rows"], facts["sum_of_ids"]) == (100, 4950)
    assert 0 < facts["first_batch_seconds"] <= facts["seconds"]
