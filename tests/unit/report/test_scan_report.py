"""Reports of scans as JSON."""

from __future__ import annotations

import json

from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import ids, make_table


def test_a_scan_reports_as_json_what_it_foretold(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 10))
    scan = ice.scan(table, columns=["id"], where="id >= 4")
    foretold = json.loads(json.dumps(scan.explain().to_dict()))
    assert (foretold["files"], foretold["rows"], foretold["columns"]) == (1, 10, 1)
    assert sum(batch.num_rows for batch in scan) == 6
    report = json.loads(json.dumps(scan.report.to_dict()))
    assert (report["rows"], report["files"], report["finished"]) == (6, 1, True)
    assert report["memory_limit_bytes"] == foretold["memory_limit_bytes"]
    assert report["peak_bytes_held"] <= report["memory_limit_bytes"]
