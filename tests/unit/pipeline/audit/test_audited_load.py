"""A load with tests: it is published if they pass, and nothing changes if they fail."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import icestream as ice
from tests.support.loads import before_commits, ids
from tests.unit.pipeline.shop import TESTED, Shop, statuses


def test_a_tested_load_is_published_in_one_step_and_its_branch_is_gone(shop: Shop) -> None:
    table = shop.make("db.orders")
    ice.append(table, ids(0, 2))
    shop.write(TESTED, orders=ids(2, 5))
    outcome = shop.run()["orders"]
    assert (outcome.status, outcome.attempts) == ("done", 1)
    assert [result.passed for result in outcome.tests] == [True, True]
    assert shop.ids("db.orders") == [0, 1, 2, 3, 4]
    assert set(table.refresh().metadata.refs) == {"main"}
    assert table.current_snapshot().snapshot_id == outcome.snapshot_id


def test_tests_that_fail_leave_main_as_it_was_and_the_branch_for_a_look(shop: Shop) -> None:
    table = shop.make("db.orders")
    before = ice.append(table, ids(0, 2)).snapshot_id
    shop.write(TESTED, orders=ids(1, 4))
    with pytest.raises(ice.ChecksFailedError, match=r"unique id: 1 key .*id = 1.*branch") as caught:
        shop.run()
    (outcome,) = caught.value.report.loads
    assert outcome.status == "failed"
    assert outcome.audit_branch is not None
    assert outcome.audit_branch in str(caught.value)
    assert table.refresh().current_snapshot().snapshot_id == before
    assert shop.ids("db.orders") == [0, 1]
    assert shop.ids("db.orders", branch=outcome.audit_branch) == [0, 1, 1, 2, 3]


def test_a_run_after_tests_failed_reads_the_mended_source(shop: Shop) -> None:
    table = shop.make("db.orders")
    ice.append(table, ids(0, 2))
    shop.write(TESTED, orders=ids(1, 4))
    with pytest.raises(ice.ChecksFailedError):
        shop.run()
    shop.write(TESTED, orders=ids(2, 4))
    assert not shop.run().resumed
    assert shop.ids("db.orders") == [0, 1, 2, 3]
    assert set(table.refresh().metadata.refs) == {"main"}


def test_a_fresh_run_drops_the_branches_of_the_one_that_it_gives_up(shop: Shop) -> None:
    table = shop.make("db.orders")
    ice.append(table, ids(0, 2))
    shop.write(TESTED, orders=ids(1, 4))
    with pytest.raises(ice.ChecksFailedError):
        shop.run()
    shop.write(TESTED, orders=ids(2, 4))
    shop.run(fresh=True)
    assert set(table.refresh().metadata.refs) == {"main"}


def test_a_commit_by_others_between_load_and_publish_is_kept_and_tested(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = shop.make("db.orders")
    ice.append(table, ids(0, 2))
    shop.write(TESTED, orders=ids(2, 5))
    others = iter([ids(10, 11), ids(11, 12)])

    from icestream.pipeline.audit import audited_load

    check = audited_load.run_local_checks

    def meanwhile(*args: Any, **options: Any) -> Any:
        results = check(*args, **options)
        if (rows := next(others, None)) is not None:
            ice.append(shop.table("db.orders"), rows)
        return results

    monkeypatch.setattr(audited_load, "run_local_checks", meanwhile)
    outcome = shop.run()["orders"]
    assert outcome.attempts == 3
    assert shop.ids("db.orders") == [0, 1, 2, 3, 4, 10, 11]


def test_others_that_never_stop_are_a_conflict_and_nothing_is_published(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.make("db.orders")
    shop.write(TESTED, orders=ids(2, 5))
    from icestream.pipeline.audit import audited_load

    check = audited_load.run_local_checks

    numbers = iter(range(90, 100))

    def meanwhile(*args: Any, **options: Any) -> Any:
        number = next(numbers)
        ice.append(shop.table("db.orders"), ids(number, number + 1))
        return check(*args, **options)

    monkeypatch.setattr(audited_load, "run_local_checks", meanwhile)
    with pytest.raises(ice.RunFailedError) as caught:
        shop.run()
    assert isinstance(caught.value.__cause__, ice.CommitConflictError)
    assert shop.ids("db.orders") == [90, 91, 92, 93, 94]


def test_a_table_that_a_tested_load_creates_is_there_when_tests_hold(shop: Shop) -> None:
    text = TESTED.replace("into: db.orders", "into: db.new\n        partition_by: [part]")
    shop.write(text, orders=ids(0, 3))
    outcome = shop.run()["orders"]
    assert outcome.report is not None
    assert outcome.report.created
    assert shop.ids("db.new") == [0, 1, 2]
    assert [field.name for field in shop.table("db.new").spec().fields] == ["part"]


def test_a_tested_load_creates_a_column_of_json_that_is_always_null_as_text(shop: Shop) -> None:
    shop.write(TESTED.replace("orders.parquet", "orders.jsonl"))
    (shop.folder / "orders.jsonl").write_text('{"id": 1, "note": null}\n{"id": 2, "note": null}\n')
    assert statuses(shop.run()) == {"orders": "done"}
    rows = shop.table("db.orders").scan().to_arrow()
    assert str(rows.schema.field("note").type) in ("string", "large_string")
    assert rows.to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": None}]


def test_a_tested_load_creates_a_table_without_columns_that_have_no_type(shop: Shop) -> None:
    rows = ids(0, 3).append_column("nothing", pa.nulls(3))
    shop.write(TESTED, orders=rows)
    outcome = shop.run()["orders"]
    assert outcome.report is not None
    assert outcome.report.columns_discarded == ("nothing",)
    assert shop.ids("db.orders") == [0, 1, 2]
    shop.write(TESTED, orders=rows)
    with pytest.raises(ice.RunFailedError, match="column 'nothing' is not in the table"):
        shop.run()  # as of any table that was there before
    assert shop.ids("db.orders") == [0, 1, 2]


def test_a_file_that_changes_after_the_table_was_created_for_a_tested_load_is_no_loss(
    shop: Shop,
) -> None:
    rows = ids(0, 3).append_column("nothing", pa.nulls(3))
    shop.write(TESTED, orders=rows)
    more = rows.append_column("more", pa.array([1, 2, 3]))
    with (
        before_commits(shop.catalog, lambda: shop.write(TESTED, orders=more)),
        pytest.raises(ice.RunFailedError, match="changed while it was being loaded"),
    ):
        shop.run()
    assert not shop.catalog.table_exists("db.orders")
    assert statuses(shop.run()) == {"orders": "done"}
    assert "more" in shop.table("db.orders").schema().column_names


def test_a_table_that_a_tested_load_creates_is_gone_when_tests_fail(shop: Shop) -> None:
    shop.write(TESTED, orders=pa.concat_tables([ids(0, 3), ids(2, 3)]))
    with pytest.raises(ice.ChecksFailedError, match=r"db\.orders was not created"):
        shop.run()
    assert not shop.catalog.table_exists("db.orders")
    assert not list((shop.folder / "warehouse").rglob("*.parquet"))
    shop.write(TESTED, orders=ids(0, 3))
    assert not shop.run().resumed
    assert shop.ids("db.orders") == [0, 1, 2]


def test_a_table_that_others_have_used_is_never_dropped(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(TESTED, orders=pa.concat_tables([ids(0, 3), ids(2, 3)]))
    from icestream.pipeline.audit import audited_load

    check = audited_load.run_local_checks

    def meanwhile(*args: Any, **options: Any) -> Any:
        ice.append(shop.table("db.orders"), ids(90, 91))
        return check(*args, **options)

    monkeypatch.setattr(audited_load, "run_local_checks", meanwhile)
    with pytest.raises(ice.ChecksFailedError, match="on branch"):
        shop.run()
    assert shop.ids("db.orders") == [90]
