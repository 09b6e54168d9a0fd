"""PyIceberg's `IncrementalAppendScan` gives the rows that it gives in PyIceberg."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "day": [f"day {n % 2}" for n in ids]}, SCHEMA)


@pytest.fixture
def history(catalog: SqlCatalog) -> tuple[Table, list[int]]:
    """Appends of 1-2, 3-4 and 7-8; an overwrite that adds 5-6, and a delete of 3, between them."""
    table = catalog.create_table("db.t", SCHEMA)
    steps = [
        lambda: ice.append(table, _rows(1, 2)),
        lambda: ice.append(table, _rows(3, 4)),
        lambda: ice.overwrite(table, _rows(5, 6), where="id = 1"),
        lambda: ice.delete(table, "id = 3"),
        lambda: ice.append(table, _rows(7, 8)),
    ]
    return table, [step().snapshot_id for step in steps]


@pytest.mark.parametrize(
    ("first", "inclusive", "last", "ids"),
    [
        (None, False, None, [1, 2, 3, 4, 7, 8]),
        (0, False, None, [3, 4, 7, 8]),
        (0, True, 1, [1, 2, 3, 4]),
        (1, False, 3, []),
        (4, True, None, [7, 8]),
    ],
)
def test_only_appended_files_of_the_range_are_read(history, first, inclusive, last, ids) -> None:
    table, snapshots = history
    source = table.incremental_append_scan().update(
        from_snapshot_id=None if first is None else snapshots[first],
        from_snapshot_inclusive=inclusive,
        to_snapshot_id=None if last is None else snapshots[last],
    )
    scan = ice.scan(source)
    assert scan.to_arrow()["id"].to_pylist() == ids
    assert sorted(source.to_arrow()["id"].to_pylist()) == ids
    assert scan.count() == len(ids)
    assert sum(split.rows for split in scan.splits()) == len(ids)


def test_it_keeps_its_filter_columns_and_limit(history) -> None:
    table, snapshots = history
    source = table.incremental_append_scan(
        row_filter="day = 'day 0'", selected_fields=("id",), limit=2
    ).from_snapshot_id_inclusive(snapshots[0])
    assert ice.scan(source).to_arrow().to_pydict() == {"id": [2, 4]}
    assert ice.scan(source, where="id > 4").to_arrow().to_pydict() == {"id": [8]}
    assert ice.scan(source.filter("id > 100")).explain().files == 0


def test_a_range_that_does_not_exist_is_refused_as_in_pyiceberg(history) -> None:
    table, snapshots = history
    scan = table.incremental_append_scan().update
    for wrong in (
        scan(from_snapshot_id=snapshots[4], to_snapshot_id=snapshots[0]),
        scan(from_snapshot_id=snapshots[4]),  # Nothing was committed since.
        scan(from_snapshot_id=7, from_snapshot_inclusive=True),
        scan(to_snapshot_id=7),
    ):
        with pytest.raises(ValueError, match="snapshot"):
            list(wrong.plan_files())
        with pytest.raises(ice.InvalidArgumentError, match="range of the IncrementalAppendScan"):
            ice.scan(wrong)
    with pytest.raises(ice.InvalidArgumentError, match="leave snapshot_id, branch"):
        ice.scan(scan(), branch="main")


def test_an_empty_table_has_nothing_to_add_up(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.empty", SCHEMA)
    assert ice.scan(table.incremental_append_scan()).to_arrow().num_rows == 0
