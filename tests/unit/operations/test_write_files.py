"""`write_files`: what a worker writes, and what it leaves behind after an error."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import ids, listing, make_table


def test_a_worker_that_fails_deletes_its_own_files_only(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    target = ice.write_target(table)
    files = ice.write_files(target, ids(0, 3), task=0)
    written = listing(table)

    def broken() -> object:
        yield from ids(3, 5).to_batches()
        raise RuntimeError("source")

    with pytest.raises(RuntimeError, match="source"):
        ice.write_files(target, broken(), task=1)
    assert listing(table) == written  # the marker is shared
    ice.commit_files(table, files)
    assert len(listing(table)) == 3


@pytest.mark.parametrize("mode", ["evolve", "whatever"])
def test_workers_do_not_evolve_on_their_own(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    with pytest.raises(ice.InvalidArgumentError, match="write_target"):
        ice.write_files(table, ids(0, 1), schema_mode=mode)  # type: ignore[arg-type]
