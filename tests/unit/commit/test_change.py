"""What a change says about itself."""

from __future__ import annotations

import math

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from icestream.commit.change import Change, comparable, partition_values

_FILE = DataFile.from_args(file_path="a.parquet", partition=Record(1, math.nan))


def test_partition_values_with_nan_are_equal() -> None:
    assert comparable((1, math.nan)) == comparable((1, float("nan")))
    assert partition_values(_FILE) == comparable((1, math.nan))
    assert partition_values(_FILE) != comparable((2, math.nan))


@pytest.mark.parametrize(
    ("change", "is_worth_a_snapshot"),
    [
        (Change(Operation.APPEND), False),
        (Change(Operation.APPEND, added=(_FILE,)), True),
        (Change(Operation.DELETE, removed=(_FILE,)), True),
        (Change(Operation.DELETE, added_deletes=(_FILE,)), True),
        (Change(Operation.APPEND, load_id="monday"), True),
    ],
)
def test_a_change_without_files_is_worth_a_snapshot_only_for_its_load_id(
    change: Change, is_worth_a_snapshot: bool
) -> None:
    assert change.changes_something is is_worth_a_snapshot


@pytest.mark.parametrize(
    ("change", "only_adds"),
    [
        (Change(Operation.APPEND, added=(_FILE,)), True),
        (Change(Operation.OVERWRITE, removed=(_FILE,)), False),
        (Change(Operation.DELETE, added_deletes=(_FILE,)), False),
        (Change(Operation.OVERWRITE, conflict_filter=AlwaysTrue()), False),
        (Change(Operation.OVERWRITE, conflict_partitions=frozenset()), False),
    ],
)
def test_a_change_that_read_the_table_does_more_than_add(change: Change, only_adds: bool) -> None:
    assert change.only_adds is only_adds
