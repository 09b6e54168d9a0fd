"""The rows that were appended to a table between two of its snapshots."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import replace

from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.pipeline.inputs.load_input import TablePoint
from icestream.pipeline.inputs.table_increment import scan_point
from icestream.pipeline.request.source_spec import SourceSpec
from tests.support.many_files import add_many_files, wide_rows


def _new_files(catalog: Catalog, count: int, *, linked: bool) -> TablePoint:
    """Files that were added by one snapshot, in manifests of 50."""
    rows = wide_rows(3)
    table = catalog.create_table("db.many", rows.schema, properties={"format-version": "2"})
    since = ice.append(table, rows).snapshot_id
    table = add_many_files(table, count, per_manifest=50, linked=linked)
    return TablePoint(table, table.metadata.current_snapshot_id, since, is_increment=True)


def test_new_files_of_a_table_are_no_list(catalog: Catalog) -> None:
    """As one, they would take 600 bytes each. A chunk of a manifest takes 1 MB."""
    point = _new_files(catalog, 4_000, linked=False)
    source = SourceSpec("table", table="db.many")
    warm = scan_point(source, point, memory=1_000_000)
    assert warm is not None
    next(warm.iter_splits())
    del warm
    gc.collect()
    tracemalloc.start()
    try:
        scanned = scan_point(source, point, memory=1_000_000)
        assert scanned is not None
        assert sum(1 for _ in scanned.iter_splits()) == 4_000
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_500_000


def test_new_files_of_a_table_are_looked_for_on_the_callers_account(catalog: Catalog) -> None:
    point = _new_files(catalog, 100, linked=True)
    budget = ice.MemoryBudget("32MB")
    scanned = scan_point(SourceSpec("table", table="db.many"), point, memory=budget)
    assert scanned is not None
    assert budget.peak_bytes > 0
    assert budget.held_bytes == 0
    batches = iter(scanned)
    next(batches)
    scanned.close()  # in the middle of a manifest
    assert budget.held_bytes == 0


def test_a_snapshot_without_new_files_is_no_scan(catalog: Catalog) -> None:
    point = _new_files(catalog, 0, linked=False)
    assert scan_point(SourceSpec("table", table="db.many"), point, memory=1_000_000) is None


def test_the_columns_of_a_table_source_come_in_their_order(catalog: Catalog) -> None:
    point = _new_files(catalog, 1, linked=True)
    names = tuple(reversed(point.table.schema().column_names[:3]))
    source = SourceSpec("table", table="db.many", columns=names)
    for is_increment in (True, False):
        scanned = scan_point(source, replace(point, is_increment=is_increment), memory="32MB")
        assert scanned is not None
        assert next(batch.schema.names for batch in scanned) == list(names)
