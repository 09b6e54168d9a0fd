"""The search for orphans: what stops it, and which folders and files it looks at."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.stored import folder_of, stored_files
from tests.support.strays import SCHEMA, overwritten, ten_rows


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["manifest", "list"])
def test_metadata_that_was_cut_off_stops_the_search(
    catalog: SqlCatalog, kind: str, kept: float
) -> None:
    table = overwritten(catalog, "db.t")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    where = snapshot.manifest_list
    if kind == "manifest":
        where = snapshot.manifests(table.io)[0].manifest_path
    path = Path(where.removeprefix("file://"))
    content = path.read_bytes()
    marker = content[-16:]  # It ends the header and each block. A header alone is a whole file.
    header_bytes = content.index(marker) + len(marker)
    path.write_bytes(content[: header_bytes + int((len(content) - header_bytes) * kept)])
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CatalogError, match=path.name):
        ice.orphans(table, older_than=0, delete=True)
    assert stored_files(folder_of(table)) == before


def test_a_manifest_that_was_cut_off_between_two_blocks_stops_the_search(
    catalog: SqlCatalog,
) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    ice.commit_files(
        table, [file for n in range(3) for file in ice.write_files(table, ten_rows(n))]
    )
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file://"))
    content = path.read_bytes()
    mark = content[-16:]  # ends the header, and every block
    blocks = content.split(mark)
    assert len(blocks) > 3
    path.write_bytes(mark.join(blocks[:3]) + mark)
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CatalogError, match="truncated"):
        ice.orphans(table, older_than=0, delete=True)
    assert stored_files(folder_of(table)) == before
