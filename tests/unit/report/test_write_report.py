"""Reports of writes and merges as JSON."""

from __future__ import annotations

import json

from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import ids, make_table


def test_reports_of_writes_and_merges_are_documents_with_all_their_parts(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog)
    wrote = json.loads(json.dumps(ice.append(table, ids(0, 3)).to_dict()))
    assert (wrote["operation"], wrote["rows_inserted"], wrote["files_added"]) == ("append", 3, 1)
    assert wrote["bytes_written"] > 0
    assert 0 < wrote["peak_bytes_held"] <= wrote["memory_limit_bytes"]
    merged = json.loads(json.dumps(ice.merge(table, ids(2, 4, part=1), on="id").to_dict()))
    assert (merged["rows_updated"], merged["rows_inserted"], merged["files_read"]) == (1, 1, 1)
    assert merged.keys() - wrote.keys() == {
        "write_mode",
        "files_read",
        "files_kept",
        "bytes_read",
        "rows_superseded",
        "target_duplicates",
    }
