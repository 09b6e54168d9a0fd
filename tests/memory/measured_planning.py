"""Plans of many files, measured. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
import icestream.read.scan  # isort: skip  # Imports are not measured.
import icestream.pipeline.inputs.table_increment  # isort: skip

import time
from collections.abc import Callable
from pathlib import Path

from pyiceberg.table import Table

from icestream.pipeline.inputs.load_input import TablePoint
from icestream.pipeline.request.source_spec import SourceSpec
from tests.support.catalogs import make_catalog
from tests.support.many_files import add_many_files, wide_rows

FILES, COLUMNS = 100_000, 50
MEMORY = 64_000_000
_HALF = f"c0 < {1_000_000_007 * FILES // 2}"  # See `add_many_files`.


def make_table(directory: Path) -> None:
    """Make the table `db.t`, whose files were added by one snapshot."""
    catalog = make_catalog(directory)
    rows = wide_rows(COLUMNS)
    table = catalog.create_table("db.t", rows.schema, properties={"format-version": "2"})
    ice.append(table, rows)
    add_many_files(table, FILES)
    catalog.close()


def one_by_one(table: Table) -> int:
    """All files, none of which is kept."""
    return sum(1 for _ in ice.scan(table, memory=MEMORY).iter_splits())


def half(table: Table) -> int:
    """A filter that half of the files pass."""
    return sum(1 for _ in ice.scan(table, where=_HALF, memory=MEMORY).iter_splits())


def as_a_list(table: Table) -> int:
    """Splits for other workers."""
    return len(ice.scan(table, memory=MEMORY).splits())


def ten_rows(table: Table) -> int:
    """A scan that has enough soon."""
    return sum(batch.num_rows for batch in ice.scan(table, limit=10, memory=MEMORY))


def new_files(table: Table) -> int:
    """What an incremental load has to read."""
    last = table.current_snapshot()
    assert last is not None
    point = TablePoint(table, last.snapshot_id, last.parent_snapshot_id, is_increment=True)
    scanned = icestream.pipeline.inputs.table_increment.scan_point(
        SourceSpec("table", table="db.t"), point, memory=MEMORY
    )
    assert scanned is not None
    return sum(1 for _ in scanned.iter_splits())


def by_pyiceberg(table: Table) -> int:
    """PyIceberg's own plan."""
    return sum(1 for _ in table.scan().plan_files())


def half_by_pyiceberg(table: Table) -> int:
    """PyIceberg's own plan with that filter."""
    return sum(1 for _ in table.scan(_HALF).plan_files())


def measured(directory: str, plan: Callable[[Table], int]) -> tuple[int, float]:
    """What a plan of the table `db.t` finds, and its CPU seconds."""
    catalog = make_catalog(Path(directory))
    table = catalog.load_table("db.t")
    began = time.process_time()
    found = plan(table)
    seconds = time.process_time() - began
    catalog.close()
    return found, seconds
