"""Runs of a pipeline: order, what fails and what is blocked, tests that gate, what is resumed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import icestream as ice
from tests.support.loads import before_commits, ids, snapshots_of
from tests.unit.pipeline.shop import TESTED, Shop, statuses


def test_loads_run_after_those_they_wait_for(shop: Shop) -> None:
    shop.make("db.a")
    shop.make("db.b")
    text = """
        defaults: {engine: local}
        loads:
          b: {source: "table:db.a", into: db.b, mode: replace}
          a: {source: a.parquet, into: db.a}
    """
    shop.write(text, a=ids(0, 3))
    report = shop.run()
    assert [outcome.load for outcome in report.loads] == ["a", "b"]
    assert statuses(report) == {"a": "done", "b": "done"}
    assert report.completed
    assert not report.resumed
    assert shop.ids("db.b") == [0, 1, 2]
    assert report["a"].report is not None
    assert report["a"].report.rows_inserted == 3


_PLAIN = "{defaults: {engine: local}, loads: {a: {source: a.parquet, into: db.a}}}"


def test_an_append_of_the_same_inputs_is_already_loaded(shop: Shop) -> None:
    table = shop.make("db.a")
    shop.write(_PLAIN, a=ids(0, 2))
    first, second = shop.run(), shop.run()
    assert first.run_id != second.run_id
    assert not second.resumed
    assert second["a"].status == "already loaded"
    assert second["a"].snapshot_id == first["a"].snapshot_id
    assert second["a"].report is not None
    assert second["a"].report.status == "already loaded"
    assert second.completed
    assert shop.ids("db.a") == [0, 1]
    assert len(snapshots_of(table)) == 1


def test_again_appends_the_same_inputs_once_more(shop: Shop) -> None:
    shop.make("db.a")
    shop.write(_PLAIN, a=ids(0, 2))
    for again, rows in ((True, 2), (False, 2), (True, 4), (True, 6), (False, 6)):
        report = shop.run(again=again)
        assert len(shop.ids("db.a")) == rows
        assert (report["a"].status == "done") == again


@pytest.mark.parametrize("change", ["rows", "mtime", "name", "more", "definition"])
def test_an_append_of_other_inputs_or_by_another_definition_is_loaded(
    shop: Shop, change: str
) -> None:
    shop.make("db.a")
    text = _PLAIN.replace("a.parquet", "'*.parquet'")
    shop.write(text, a=ids(0, 2))
    shop.run()
    file, expected = shop.folder / "a.parquet", [0, 0, 1, 1]
    if change == "rows":
        shop.write(text, a=ids(2, 4))
        expected = [0, 1, 2, 3]
    elif change == "mtime":
        os.utime(file, ns=(0, file.stat().st_mtime_ns + 1))
    elif change == "name":
        file.rename(shop.folder / "b.parquet")
    elif change == "more":
        shop.write(text, b=ids(2, 3))
        expected = [0, 0, 1, 1, 2]
    else:
        shop.write(text.replace("into:", "schema_mode: evolve, into:"))
    assert statuses(shop.run()) == {"a": "done"}
    assert shop.ids("db.a") == expected
    assert statuses(shop.run()) == {"a": "already loaded"}


def test_a_definition_that_makes_the_same_rows_is_the_same(shop: Shop) -> None:
    shop.make("db.a")
    shop.write(_PLAIN, a=ids(0, 2))
    shop.run()
    for more in ("memory: 32MB", "properties: {why: not}", "table_properties: {a: b}"):
        shop.write(_PLAIN.replace("into:", f"{more}, into:"))
        assert statuses(shop.run()) == {"a": "already loaded"}


def test_an_append_of_a_table_is_loaded_when_the_table_has_another_snapshot(shop: Shop) -> None:
    source, _ = shop.make("db.source"), shop.make("db.a")
    ice.append(source, ids(0, 1))
    shop.write(_PLAIN.replace("a.parquet", "'table:db.source'"))
    assert statuses(shop.run()) == {"a": "done"}
    assert statuses(shop.run()) == {"a": "already loaded"}
    ice.append(source, ids(1, 2))
    assert statuses(shop.run()) == {"a": "done"}
    assert shop.ids("db.a") == [0, 0, 1]


def test_inputs_whose_rows_were_replaced_or_rolled_back_are_loaded_again(shop: Shop) -> None:
    table = shop.make("db.a")
    ice.append(table, ids(9, 10))
    before = table.refresh().current_snapshot().snapshot_id
    shop.write(_PLAIN, a=ids(0, 2))
    shop.run()
    table.refresh().manage_snapshots().rollback_to_snapshot(before).commit()
    assert statuses(shop.run()) == {"a": "done"}
    ice.overwrite(table.refresh(), ids(5, 6))
    assert statuses(shop.run()) == {"a": "done"}
    assert shop.ids("db.a") == [0, 1, 5]
    ice.delete(table.refresh(), "id >= 0")
    assert statuses(shop.run()) == {"a": "done"}
    ice.merge(table.refresh(), ids(0, 2, part=3), on=["id"])  # writes every file again
    assert statuses(shop.run()) == {"a": "already loaded"}
    assert shop.ids("db.a") == [0, 1]


def test_a_replace_and_an_append_to_one_table_give_the_same_rows_each_night(shop: Shop) -> None:
    shop.make("db.a")
    text = """
        defaults: {engine: local}
        loads:
          base: {source: a.parquet, into: db.a, mode: replace}
          more: {source: b.parquet, into: db.a}
    """
    shop.write(text, a=ids(0, 2), b=ids(2, 3))
    for _ in range(3):
        assert statuses(shop.run()) == {"base": "done", "more": "done"}
        assert shop.ids("db.a") == [0, 1, 2]


def test_a_test_that_fails_keeps_no_other_load_from_new_rows(shop: Shop) -> None:
    for name in ("db.ev", "db.bad"):
        shop.make(name)
    text = """
        defaults: {engine: local}
        loads:
          ev: {source: ev.parquet, into: db.ev, mode: replace}
          grows: {source: "in/*.parquet", into: db.grows, incremental: true}
          bad: {source: bad.parquet, into: db.bad, tests: [{rows: {max: 1}}]}
    """
    (shop.folder / "in").mkdir()
    for night in range(1, 4):
        shop.write(text, ev=ids(0, night), bad=ids(0, 2), **{f"in/{night}": ids(night, night + 1)})
        with pytest.raises(ice.ChecksFailedError) as caught:
            shop.run()
        report = caught.value.report
        assert statuses(report) == {"ev": "done", "grows": "done", "bad": "failed"}
        assert (report.resumed, report.ended, report.completed) == (False, True, False)
        assert shop.ids("db.ev") == list(range(night))
        assert shop.ids("db.grows") == list(range(1, night + 1))
        assert not shop.ids("db.bad")
    branches = set(shop.table("db.bad").metadata.refs) - {"main"}
    assert len(branches) == 1  # that of the newest run
    shop.write(text, bad=ids(0, 1))
    assert shop.run()["bad"].status == "done"
    assert set(shop.table("db.bad").metadata.refs) == {"main"}


class _Killed(BaseException):
    """As if the process had died there."""


def _crash(shop: Shop, at: str, *, after: bool, **options: Any) -> None:
    """Run, and die before or after a load."""

    def on_load(name: str, outcome: Any) -> None:
        if name == at and (outcome is not None) == after:
            raise _Killed

    with pytest.raises(_Killed):
        shop.run(on_load=on_load, **options)


_MERGED = """
    defaults: {engine: local}
    loads:
      m: {source: m.parquet, into: db.m, mode: merge, keys: id}
      a: {source: a.parquet, into: db.a}
      z: {source: z.parquet, into: db.z, mode: replace}
"""


def test_a_run_that_crashed_is_resumed_once(shop: Shop) -> None:
    for name in ("db.m", "db.a", "db.z"):
        shop.make(name)
    shop.write(_MERGED, m=ids(0, 2), a=ids(0, 2), z=ids(0, 2))
    _crash(shop, "z", after=False)
    plan = shop.run(dry_run=True)
    assert [load.status for load in plan.loads] == ["skip", "skip", "run"]
    report = shop.run()
    assert report.resumed
    assert statuses(report) == {"m": "skipped", "a": "skipped", "z": "done"}
    report = shop.run()
    assert not report.resumed
    assert statuses(report) == {"m": "done", "a": "already loaded", "z": "done"}
    assert shop.ids("db.a") == [0, 1]


def test_a_resumed_run_loads_what_has_changed_since(shop: Shop) -> None:
    for name in ("db.m", "db.a", "db.z"):
        shop.make(name)
    shop.write(_MERGED, m=ids(0, 2), a=ids(0, 2), z=ids(0, 2))
    _crash(shop, "z", after=True)
    shop.write(_MERGED, m=ids(0, 3), a=ids(5, 6))
    _crash(shop, "a", after=True)
    text = _MERGED.replace("keys: id", "keys: [id, part]")
    shop.write(text)
    report = shop.run()
    assert report.resumed
    assert statuses(report) == {"m": "done", "a": "skipped", "z": "skipped"}
    assert shop.ids("db.m") == [0, 1, 2]
    assert shop.ids("db.a") == [0, 1, 5]
    assert report.completed


def test_a_resumed_run_that_repeats_appends_repeats_each_once(shop: Shop) -> None:
    for name in ("db.m", "db.a", "db.z"):
        shop.make(name)
    shop.write(_MERGED, m=ids(0, 1), a=ids(0, 1), z=ids(0, 1))
    shop.run()
    _crash(shop, "z", after=False, again=True)
    _crash(shop, "z", after=False, again=True)
    assert shop.run().resumed
    assert shop.ids("db.a") == [0, 0]
    assert shop.run(again=True).resumed is False
    assert shop.ids("db.a") == [0, 0, 0]


def test_sources_that_can_not_be_known_again_are_skipped_by_a_resumed_run_alone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.m", "db.a", "db.z"):
        shop.make(name)
    shop.write(_MERGED, m=ids(0, 1), a=ids(0, 1), z=ids(0, 1))
    from icestream.pipeline.inputs import load_identity

    monkeypatch.setattr(load_identity, "_digest_of_inputs", lambda inputs: None)
    _crash(shop, "z", after=False)
    assert statuses(shop.run()) == {"m": "skipped", "a": "skipped", "z": "done"}
    assert statuses(shop.run())["a"] == "done"
    assert shop.ids("db.a") == [0, 0]


def test_a_commit_without_an_answer_leaves_a_run_to_be_resumed(shop: Shop) -> None:
    shop.make("db.a")
    shop.write(_PLAIN.replace("into:", "mode: merge, keys: id, into:"), a=ids(0, 2))
    error = ice.CommitUnknownError("no answer", snapshot_id=1)
    with (
        mock.patch("icestream.pipeline.run.run_load", side_effect=error),
        pytest.raises(ice.RunFailedError) as caught,
    ):
        shop.run()
    assert caught.value.report.ended is False
    assert shop.run().resumed


def test_a_state_of_the_version_before_is_read(shop: Shop) -> None:
    table = shop.make("db.a")
    shop.make("db.z")
    shop.write(
        _MERGED.replace("      m: {source: m.parquet, into: db.m, mode: merge, keys: id}\n", "")
    )
    shop.write((shop.folder / "pipeline.yaml").read_text(), a=ids(0, 2), z=ids(0, 2))
    state = {
        "pipeline": "pipeline",
        "run_id": "20261116T000000_abcdef",
        "wanted": ["a", "z"],
        "loads": {
            "a": {
                "status": "done",
                "fingerprint": "",
                "snapshot_id": 1,
                "old_branches": [],
                "created_uuid": None,
                "left_out": [],
            }
        },
        "completed": False,
    }
    ice.append(table, ids(0, 2), load_id="pipeline/20261116T000000_abcdef/a")
    file = shop.folder / "state" / "runs" / "pipeline.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(state))
    report = shop.run()
    assert report.resumed
    assert statuses(report) == {"a": "skipped", "z": "done"}
    assert shop.ids("db.a") == [0, 1]
    state["loads"]["z"] = {"status": "tests failed"}
    file.write_text(json.dumps(state))
    assert not shop.run().resumed


def test_a_load_that_is_not_in_the_file_any_more_keeps_no_run_from_its_end(shop: Shop) -> None:
    shop.make("db.m")
    shop.make("db.a")
    shop.make("db.z")
    shop.write(_MERGED, m=ids(0, 1), a=ids(0, 1), z=ids(0, 1))
    _crash(shop, "m", after=True)
    shop.write(_PLAIN)
    assert (shop.run().ended, shop.run().resumed) == (True, False)


def test_some_loads_of_a_crashed_run_leave_the_others_to_be_resumed(shop: Shop) -> None:
    for name in ("db.m", "db.a", "db.z"):
        shop.make(name)
    shop.write(_MERGED, m=ids(0, 1), a=ids(0, 1), z=ids(0, 1))
    _crash(shop, "m", after=True)
    report = shop.run(only="z")
    assert (report.resumed, report.ended) == (True, False)
    assert statuses(shop.run()) == {"m": "skipped", "a": "done", "z": "skipped"}


def test_a_load_that_fails_blocks_those_that_wait_and_no_others(shop: Shop) -> None:
    for name in ("db.a", "db.b", "db.c", "db.d"):
        shop.make(name)
    text = """
        defaults: {engine: local}
        loads:
          a: {source: a.parquet, into: db.a}
          b: {source: "table:db.a", into: db.b}
          c: {source: c.parquet, into: db.c, after: b}
          d: {source: c.parquet, into: db.d}
    """
    shop.write(text, a=pa.table({"other": [1]}), c=ids(5, 6))
    with pytest.raises(
        ice.RunFailedError, match=r"1 of 4 loads.*a: .*wait for these: b, c"
    ) as caught:
        shop.run()
    assert isinstance(caught.value.__cause__, ice.SchemaMismatchError)
    report = caught.value.report
    assert isinstance(report, ice.RunReport)
    assert statuses(report) == {"a": "failed", "b": "blocked", "c": "blocked", "d": "done"}
    assert not report.completed
    shop.write(text, a=ids(0, 2))
    again = shop.run()
    assert not again.resumed
    assert again.run_id != report.run_id
    assert statuses(again) == {"a": "done", "b": "done", "c": "done", "d": "already loaded"}
    assert (shop.ids("db.b"), shop.ids("db.d")) == ([0, 1], [5])


def test_a_fresh_run_resumes_nothing_and_appends_nothing_twice(shop: Shop) -> None:
    for name in ("db.m", "db.a", "db.z"):
        shop.make(name)
    shop.write(_MERGED, m=ids(0, 1), a=ids(0, 1), z=ids(0, 1))
    _crash(shop, "z", after=False)
    report = shop.run(fresh=True)
    assert not report.resumed
    assert statuses(report) == {"m": "done", "a": "already loaded", "z": "done"}


def test_some_loads_can_be_chosen(shop: Shop) -> None:
    shop.make("db.a")
    text = """
        defaults: {engine: local}
        loads:
          a: {source: a.parquet, into: db.a}
          b: {source: b.parquet, into: db.a}
    """
    shop.write(text, a=ids(0, 1), b=ids(1, 2))
    assert statuses(shop.run(only="b")) == {"b": "done"}
    assert shop.ids("db.a") == [1]
    assert shop.run(only=["b"]).resumed is False
    with pytest.raises(ice.InvalidArgumentError, match="'c', which is unknown"):
        shop.run(only=["c"])


def test_two_runs_at_once_are_refused(shop: Shop) -> None:
    shop.make("db.orders")
    shop.write(TESTED, orders=ids(2, 5))
    refused: list[Exception] = []

    def second(name: str, outcome: Any) -> None:
        with pytest.raises(ice.InvalidArgumentError, match="is already running") as caught:
            shop.run()
        refused.append(caught.value)

    shop.run(on_load=second)
    assert len(refused) == 2
    assert shop.ids("db.orders") == [2, 3, 4]


def test_the_report_is_stored_as_json_without_breaking_a_run(shop: Shop) -> None:
    shop.make("db.orders")
    shop.write(TESTED, orders=ids(2, 5))
    report = shop.run()
    assert report.report_file is not None
    stored = json.loads(Path(report.report_file).read_text())
    assert stored == json.loads(json.dumps(report.to_dict()))
    assert stored["loads"][0]["tests"][0]["name"] == "unique id"


def test_a_state_folder_that_can_not_be_written_is_refused_before_anything_is_loaded(
    shop: Shop,
) -> None:
    table = shop.make("db.orders")
    shop.write(TESTED, orders=ids(2, 5))
    (shop.folder / "state").write_text("a file")
    with pytest.raises(ice.InvalidArgumentError, match="give state= another folder"):
        shop.run()
    assert not snapshots_of(table)


def test_a_run_whose_state_is_lost_half_way_goes_on(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.make("db.orders")
    shop.write(TESTED, orders=ids(2, 5))

    def lose() -> None:
        folder = shop.folder / "state" / "runs"
        folder.rename(folder.with_name("lost"))
        folder.write_text("a file")

    with before_commits(shop.catalog, lose):
        report = shop.run()
    assert statuses(report) == {"orders": "done"}
    assert shop.ids("db.orders") == [2, 3, 4]
    assert "the state of the run could not be written" in caplog.text


def test_an_incremental_load_with_tests_takes_each_file_once(shop: Shop) -> None:
    text = TESTED.replace("orders.parquet", "in/*.parquet") + "        incremental: true\n"
    (shop.folder / "in").mkdir()
    shop.write(text, **{"in/a": ids(0, 2)})
    assert statuses(shop.run()) == {"orders": "done"}
    assert shop.ids("db.orders") == [0, 1]
    assert shop.run()["orders"].snapshot_id is None
    shop.write(text, **{"in/b": ids(1, 3)})
    with pytest.raises(ice.ChecksFailedError, match="unique id"):
        shop.run()
    assert shop.ids("db.orders") == [0, 1]
    shop.write(text, **{"in/b": ids(2, 3)})
    assert statuses(shop.run()) == {"orders": "done"}
    assert shop.ids("db.orders") == [0, 1, 2]
    assert set(shop.table("db.orders").metadata.refs) == {"main"}


def test_an_incremental_load_whose_tests_could_not_be_run_is_published_once(shop: Shop) -> None:
    text = TESTED.replace("orders.parquet", "in/*.parquet") + "        incremental: true\n"
    wrong = text.replace("- unique: id", "- unique: nothing")
    (shop.folder / "in").mkdir()
    ice.append(shop.make("db.orders"), ids(0, 1))
    shop.write(wrong, **{"in/a": ids(1, 3)})
    with pytest.raises(ice.RunFailedError, match="'nothing'"):
        shop.run()
    assert shop.ids("db.orders") == [0]
    shop.write(text)
    assert statuses(shop.run()) == {"orders": "done"}
    assert shop.ids("db.orders") == [0, 1, 2]
