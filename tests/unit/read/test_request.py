"""What travels with a scan."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa

import icestream as ice
from tests.support.tables import make_catalog


def test_what_only_the_catalog_needs_does_not_travel_with_splits(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path, password="hunter2", **{"s3.access-key-id": "needed"})
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table("db.t", rows.schema)
    table.append(rows)
    [split] = ice.scan(table).splits()
    assert split.context.io.properties["s3.access-key-id"] == "needed"
    assert b"hunter2" not in pickle.dumps(split)
    assert b"sqlite" not in pickle.dumps(split)
    assert sum(b.num_rows for b in ice.read_splits([split])) == 3
    catalog.close()
