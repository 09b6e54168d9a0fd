"""A dry run reports what the real run then does, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import BY_PART, batch, ids, make_table
from tests.support.stored import folder_of, stored_files

_COUNTS = (
    "operation",
    "rows_inserted",
    "rows_updated",
    "rows_unchanged",
    "rows_deleted",
    "files_removed",
    "bytes_removed",
    "schema_changes",
)
_OF_MERGE = (*_COUNTS, "files_read", "files_kept", "rows_superseded", "target_duplicates")


def _delete(table: Table, **settings: Any) -> ice.WriteReport:
    return ice.delete(table, "id < 15 or id = 25", **settings)


def _merge(table: Table, **settings: Any) -> ice.WriteReport:
    rows = batch([(5, 0), (6, 9), (17, 3), (99, 1), (99, 2)])
    rows = rows.append_column("op", pa.array(["D", "U", "U", "I", "I"]))
    return ice.merge(table, rows, on="id", delete_when="op = 'D'", on_duplicate="last", **settings)


def _evolve(table: Table, **settings: Any) -> ice.WriteReport:
    rows = ids(3, 5).append_column("new", pa.array([1.0, 2.0]))
    return ice.merge(table, rows, on="id", schema_mode="evolve", **settings)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize(
    ("change", "counts"), [(_delete, _COUNTS), (_merge, _OF_MERGE), (_evolve, _OF_MERGE)]
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_the_counts_are_those_of_the_real_run(
    catalog: SqlCatalog,
    change: Callable[..., ice.WriteReport],
    counts: tuple[str, ...],
    mode: str,
    partitioned: bool,
) -> None:
    settings = {"write.delete.mode": mode, "write.merge.mode": mode}
    given = {name.replace(".", "__").replace("-", "_"): mode for name, mode in settings.items()}
    spec = {"spec": BY_PART} if partitioned else {}
    table = make_table(catalog, **spec, **given)  # type: ignore[arg-type]
    for number in range(3):
        ice.append(table, ids(10 * number, 10 * number + 10, part=number))
    before = table.refresh().metadata, stored_files(folder_of(table))
    planned = change(table, dry_run=True, load_id="once")
    assert (table.refresh().metadata, stored_files(folder_of(table))) == before
    assert (planned.snapshot_id, planned.files_added, planned.bytes_written) == (None, 0, 0)
    done = change(table, load_id="once")
    assert done.snapshot_id is not None
    expected = {name: getattr(done, name) for name in counts[1:]}
    assert {name: getattr(planned, name) for name in counts[1:]} == expected
    assert change(table, dry_run=True, load_id="once").already_committed


def test_a_dry_run_of_a_compaction_changes_nothing(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    for number in range(3):
        ice.append(table, ids(10 * number, 10 * number + 10))
    ice.delete(table, "id = 5")
    before = table.refresh().metadata, stored_files(folder_of(table))
    planned = ice.compact(table, dry_run=True)
    assert (table.refresh().metadata, stored_files(folder_of(table))) == before
    assert (planned.snapshot_ids, planned.files_added) == ((), 0)
    done = ice.compact(table)
    for name in ("groups", "files_removed", "bytes_removed", "rows_rewritten"):
        assert getattr(planned, name) == getattr(done, name), name
    assert ice.compact(table, dry_run=True).groups == 0
