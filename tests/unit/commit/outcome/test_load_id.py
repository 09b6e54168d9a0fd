"""`load_id`: a load that is in the table is not loaded again."""

from __future__ import annotations

import json
import time
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.outcome.load_id import forget_loads, inputs_load_id
from tests.support.loads import (
    BY_PART,
    batch,
    before_commits,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    snapshots_of,
    summary_of,
)

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def _counts(report: ice.WriteReport) -> tuple[Any, ...]:
    return (
        report.snapshot_id,
        report.rows_inserted,
        report.rows_deleted,
        report.files_added,
        report.files_removed,
        report.bytes_written,
    )


def test_a_second_load_with_the_same_id_does_nothing(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 1), (2, 2)]))
    first = ice.overwrite(table, batch([(7, 2), (8, 3)]), partitions="dynamic", load_id="monday")
    before, opened = listing(table), []

    def source() -> pa.Table:
        opened.append(1)
        return ids(0, 5)

    for load in (
        lambda: ice.overwrite(table, source, partitions="dynamic", load_id="monday"),
        lambda: ice.append(table, source, load_id="monday"),
        lambda: ice.delete(table, "id = 1", load_id="monday"),
        lambda: ice.append(catalog.load_table("db.t"), source, load_id="monday"),
    ):
        again = load()
        assert again.already_committed
        assert _counts(again) == _counts(first)
    assert not first.already_committed
    assert listing(table) == before
    assert ids_of(table) == [1, 7, 8]
    assert summary_of(table)["icestream.load-id"] == "monday"


def test_another_id_is_another_load(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    for name in ("a", "b", "a:b", "b:a", "ü/%"):
        assert not ice.append(table, ids(0, 1), load_id=name).already_committed
        assert ice.append(table, ids(0, 1), load_id=name).already_committed
    assert ids_of(table) == [0] * 5


def test_a_load_is_remembered_when_its_snapshot_has_expired(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    first = ice.append(table, ids(0, 2), load_id="old")
    ice.append(table, ids(2, 3))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert first.snapshot_id not in snapshots_of(table)
    again = ice.append(table, ids(0, 2), load_id="old")
    assert again.already_committed
    assert _counts(again) == _counts(first)
    assert ids_of(table) == [0, 1, 2]


def test_a_load_is_known_by_its_snapshot_when_the_property_is_gone(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    first = ice.append(table, ids(0, 2), load_id="x")
    keys = [key for key in table.refresh().properties if key.startswith("icestream.load.")]
    with table.transaction() as transaction:
        transaction.remove_properties(*keys)
    again = ice.append(table, ids(0, 2), load_id="x")
    assert again.already_committed
    assert _counts(again) == _counts(first)


def test_a_load_that_was_rolled_back_is_loaded_again(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    start = ice.append(table, ids(0, 1)).snapshot_id
    assert start is not None
    rolled_back = ice.append(table, ids(5, 6), load_id="x")
    table.manage_snapshots().set_current_snapshot(start).commit()
    again = ice.append(table, ids(5, 6), load_id="x")
    assert not again.already_committed
    assert again.snapshot_id != rolled_back.snapshot_id
    assert ids_of(table) == [0, 5]
    assert ice.append(table, ids(5, 6), load_id="x").snapshot_id == again.snapshot_id


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("appended", [False, True], ids=["at once", "after another append"])
@pytest.mark.parametrize("further", [False, True], ids=["to its parent", "further back"])
def test_a_load_that_was_rolled_back_and_expired_is_loaded_again(
    catalog: SqlCatalog, version: int, appended: bool, further: bool
) -> None:
    table = make_table(catalog, version=version)
    starts = [ice.append(table, ids(n, n + 1)).snapshot_id for n in range(2)]
    time.sleep(0.002)  # version 1 goes by the time
    load = ice.append(table, ids(5, 6), load_id="tuesday")
    start = starts[0 if further else 1]
    assert start is not None
    table.manage_snapshots().set_current_snapshot(start).commit()
    if appended:
        ice.append(table, ids(7, 8))
    table.maintenance.expire_snapshots().by_id(load.snapshot_id).commit()
    again = ice.append(table, ids(5, 6), load_id="tuesday")
    assert not again.already_committed
    assert ids_of(table) == [*range(1 if further else 2), 5, *([7] if appended else [])]
    assert ice.append(table, ids(5, 6), load_id="tuesday").snapshot_id == again.snapshot_id


@pytest.mark.parametrize("version", [1, 2])
def test_a_load_that_expired_with_all_before_it_stays_committed(
    catalog: SqlCatalog, version: int
) -> None:
    table = make_table(catalog, version=version)
    for load_id in ("a", "b", "c"):
        ice.append(table, ids(0, 1), load_id=load_id)
    for snapshot_id in snapshots_of(table)[:2]:
        table.maintenance.expire_snapshots().by_id(snapshot_id).commit()
    for load_id in ("a", "b", "c"):
        assert ice.append(table, ids(0, 1), load_id=load_id).already_committed


def test_a_load_that_a_staged_append_made_beside_others_and_expired_stays_committed(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """Its property was staged before the others committed: the number in it is too low."""
    table = make_table(catalog, **_QUICK)
    transaction = table.transaction()
    staged = ice.append(transaction, ids(0, 1), load_id="x")
    for _ in range(2):
        ice.append(other.load_table("db.t"), ids(5, 6))
    transaction.commit_transaction()
    ice.append(table, ids(7, 8))
    table.maintenance.expire_snapshots().by_id(staged.snapshot_id).commit()
    assert ice.append(table, ids(0, 1), load_id="x").already_committed


def test_a_load_of_an_older_version_has_no_number_and_is_found(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    first = ice.append(table, ids(0, 2), load_id="old")
    key = "icestream.load.main:old"
    record = json.loads(table.refresh().properties[key])
    assert record.pop("sequence-number") == 1
    del record["timestamp-ms"]
    with table.transaction() as transaction:
        transaction.set_properties({key: json.dumps(record)})
    assert ice.append(table, ids(0, 2), load_id="old").already_committed
    ice.append(table, ids(2, 3))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert ice.append(table, ids(0, 2), load_id="old").already_committed


def test_each_branch_has_its_own_loads(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    start = ice.append(table, ids(0, 1), load_id="before").snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(start, "b").commit()
    ice.append(table, ids(1, 2), load_id="x")
    assert ice.append(table, ids(0, 1), branch="b", load_id="before").already_committed
    assert not ice.append(table, ids(1, 2), branch="b", load_id="x").already_committed
    assert ice.append(table, ids(1, 2), branch="b", load_id="x").already_committed
    assert ids_of(table) == ids_of(table, branch="b") == [0, 1]


def test_a_load_that_expired_on_one_branch_is_none_of_another(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    start = ice.append(table, ids(0, 1)).snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(start, "b").commit()
    first = ice.append(table, ids(1, 2), load_id="x")
    ice.append(table, ids(2, 3))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert ice.append(table, ids(1, 2), load_id="x").already_committed
    assert not ice.append(table, ids(1, 2), load_id="x", branch="b").already_committed
    assert ids_of(table, branch="b") == [0, 1]


def test_a_colon_in_a_branch_is_not_taken_for_one_in_an_id(catalog: SqlCatalog) -> None:
    """Branch a:b with load c, and branch a with load b:c, are two loads; both may expire."""
    table = make_table(catalog)
    start = ice.append(table, ids(0, 1)).snapshot_id
    assert start is not None
    manage = table.manage_snapshots().create_branch(start, "a").create_branch(start, "a:b")
    manage.commit()
    first = ice.append(table, ids(1, 2), branch="a:b", load_id="c")
    ice.append(table, ids(2, 3), branch="a:b")
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    assert ice.append(table, ids(1, 2), branch="a:b", load_id="c").already_committed
    assert not ice.append(table, ids(5, 6), branch="a", load_id="b:c").already_committed
    assert ids_of(table, branch="a") == [0, 5]


def test_the_loser_of_a_race_reports_the_winner_and_leaves_nothing(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")
    won: list[ice.WriteReport] = []
    files: list[set[str]] = []

    def meanwhile() -> None:
        before = listing(table)
        won.append(ice.append(theirs, ids(0, 2), load_id="same"))
        files.append(listing(table) - before)

    with before_commits(catalog, meanwhile):
        lost = ice.append(table, ids(0, 2), load_id="same")
    assert lost.already_committed
    assert _counts(lost) == _counts(won[0])
    assert ids_of(table) == [0, 1]
    assert listing(table) == files[0]


def _loads(table: Table) -> list[str]:
    prefix = "icestream.load."
    keys = [key for key in table.refresh().properties if key.startswith(prefix) and ":" in key]
    return sorted(key.split(":", 1)[1] for key in keys)


def test_only_the_newest_loads_are_remembered(catalog: SqlCatalog) -> None:
    table = make_table(catalog, icestream__load__retention_count="3")
    for number in range(5):
        ice.append(table, ids(number, number + 1), load_id=f"load {number}")
        time.sleep(0.002)
    assert _loads(table) == ["load 2", "load 3", "load 4"]
    assert ice.append(table, ids(0, 1), load_id="load 0").already_committed  # by its snapshot


def test_loads_are_forgotten_after_their_days(catalog: SqlCatalog) -> None:
    table = make_table(catalog, icestream__load__retention_days="2")
    ice.append(table, ids(0, 1), load_id="old")
    ice.append(table, ids(1, 2), load_id="older")
    for name, days in (("old", 1.9), ("older", 2.1)):
        _age(table, name, days)
    ice.append(table, ids(2, 3), load_id="new")
    assert _loads(table) == ["new", "old"]


def _age(table: Table, name: str, days: float) -> None:
    key = f"icestream.load.main:{name}"
    record = json.loads(table.refresh().properties[key])
    record["committed-ms"] -= int(days * 24 * 3600 * 1000)
    with table.transaction() as transaction:
        transaction.set_properties({key: json.dumps(record)})


def test_properties_of_the_same_look_that_are_none_of_ours_do_no_harm(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog)
    with table.transaction() as transaction:
        transaction.set_properties({"icestream.load.main:x": "no json", "icestream.load.a:y": "[]"})
    assert not ice.append(table, ids(0, 1), load_id="x").already_committed
    assert ice.append(table, ids(0, 1), load_id="x").already_committed
    assert ids_of(table) == [0]


def test_forgetting_a_load_that_another_forgets_meanwhile_is_no_failure(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """Two branches prune the same property: PyIceberg fails to remove it twice."""
    table = make_table(catalog, icestream__load__retention_count="1", **_QUICK)
    start = ice.append(table, ids(0, 1), load_id="first").snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(start, "b").commit()
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(theirs, ids(1, 2), branch="b", load_id="b")):
        ice.append(table, ids(2, 3), load_id="a")
    assert ids_of(table) == [0, 2]
    assert head_of(table, "b").snapshot_id != start


def test_a_load_id_works_without_rows(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    first = ice.delete(table, "id = 77", load_id="none")
    assert first.snapshot_id is not None
    assert ice.delete(table, "id < 3", load_id="none").already_committed
    assert ids_of(table) == [0, 1, 2]
    assert summary_of(table)["total-records"] == "3"


@pytest.mark.parametrize("load_id", ["", "  ", "x" * 501, 5])
def test_an_id_that_can_not_be_stored_is_refused(catalog: SqlCatalog, load_id: Any) -> None:
    table = make_table(catalog)
    with pytest.raises(ice.InvalidArgumentError, match="load_id"):
        ice.append(table, ids(0, 1), load_id=load_id)
    assert listing(table) == set()


def test_inputs_have_no_age_limit_and_are_forgotten_when_all_rows_are_replaced() -> None:
    record = json.dumps({"snapshot-id": 1, "committed-ms": 0, "counts": {}})
    inputs = inputs_load_id("definition", "inputs")
    properties = {
        f"icestream.load.main:{inputs}": record,
        f"icestream.load.other:{inputs}": record,
        "icestream.load.main:tuesday": record,
    }
    (aged,) = forget_loads(properties, branch="main", load_id="new")
    assert aged.removals == ["icestream.load.main:tuesday"]
    assert forget_loads(properties, branch="main", load_id=None) == ()
    (replaced,) = forget_loads(properties, branch="main", load_id=None, replaced=True)
    assert replaced.removals == [f"icestream.load.main:{inputs}"]
    (both,) = forget_loads(properties, branch="main", load_id="new", replaced=True)
    assert sorted(both.removals) == sorted([*aged.removals, *replaced.removals])


def test_inputs_that_a_replace_has_removed_stay_unknown_after_its_snapshot_expired(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog)
    inputs = inputs_load_id("definition", "inputs")
    ice.append(table, ids(0, 2), load_id=inputs)
    assert ice.append(table, ids(0, 2), load_id=inputs).already_committed
    ice.overwrite(table, ids(5, 6))
    ice.append(table, ids(6, 7))
    old = [each.snapshot_id for each in table.refresh().metadata.snapshots[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert not ice.append(table.refresh(), ids(0, 2), load_id=inputs).already_committed
    assert ids_of(table) == [0, 1, 5, 6]
