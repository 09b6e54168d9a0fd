"""Reports of maintenance as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice


def test_every_report_is_a_document_with_all_its_parts(catalog: SqlCatalog, tmp_path: Path) -> None:
    rows = pa.table({"id": [1]})
    table = catalog.create_table("db.t", rows.schema)
    for _ in range(2):
        ice.append(table, rows)
    health = json.loads(json.dumps(ice.health(table).to_dict()))
    assert sum(bucket["files"] for bucket in health["file_sizes"]) == health["files"] == 2
    assert health["largest_partitions"][0]["rows"] == 2
    compaction = json.loads(json.dumps(ice.compact(table).to_dict()))
    assert (compaction["files_removed"], len(compaction["snapshot_ids"])) == (2, 1)
    orphans = json.loads(json.dumps(ice.orphans(table).to_dict()))
    assert (orphans["count"], orphans["files"]) == (0, [])
