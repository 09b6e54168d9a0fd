"""`icestream run`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from pyiceberg.table import Table

from tests.unit.cli.conftest import ROWS, Run

_PIPELINE = """
    name: shop
    defaults: {engine: local}
    loads:
      changes:
        source: ${FILE:-changes.csv}
        into: shop.orders
        mode: merge
        keys: id
        tests:
          - unique: id
          - rows: {max: 1801}
      copy:
        source: table:shop.orders
        into: shop.copy
        mode: replace
"""


@pytest.fixture
def pipeline(orders: Table, folder: Path) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(dedent(_PIPELINE))
    return file


def test_a_run_shows_each_load(pipeline: Path, run: Run) -> None:
    shown = run("run", "pipeline.yaml")
    assert shown.exit_code == 0, shown.stderr
    assert "changes  done" in shown.stdout
    assert "2 of 2 passed" in shown.stdout
    assert "completed" in shown.stdout
    assert "icestream: changes done" in shown.stderr


def test_a_memory_limit_that_the_run_would_ignore_is_refused(pipeline: Path, run: Run) -> None:
    shown = run("--memory", "64MB", "run", "pipeline.yaml")
    assert shown.exit_code == 2
    assert "set memory in the pipeline file" in shown.stderr


def test_json_is_the_report(pipeline: Path, run: Run) -> None:
    shown = run("run", "pipeline.yaml", "--json", "-q", "--only", "changes")
    document = json.loads(shown.stdout)
    assert [load["status"] for load in document["loads"]] == ["done"]
    assert document["completed"] is True
    assert shown.stderr == ""


def test_tests_that_fail_end_with_twelve_and_the_report(
    pipeline: Path, run: Run, orders: Table
) -> None:
    (pipeline.parent / "bad.csv").write_text("id,price\n6000,1\n6001,2\n")
    shown = run("run", "pipeline.yaml", "--var", "FILE=bad.csv", "--json")
    assert shown.exit_code == 12
    assert "there may be at most 1,801" in shown.stderr
    statuses = {load["load"]: load["status"] for load in json.loads(shown.stdout)["loads"]}
    assert statuses == {"changes": "failed", "copy": "blocked"}
    assert orders.refresh().scan().count() == ROWS
    again = run("run", "pipeline.yaml", "--json", "-q")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["resumed"] is False


def test_another_failure_ends_with_its_own_code(pipeline: Path, run: Run) -> None:
    shown = run("run", "pipeline.yaml", "--var", "FILE=nothing.csv", "-q")
    assert shown.exit_code == 3
    assert shown.stderr.count("\n") == 1
    assert "failed" in shown.stdout


def test_a_wrong_file_ends_with_the_line(pipeline: Path, run: Run) -> None:
    pipeline.write_text("loads:\n  a:\n    source: x\n    into: d.x\n    mod: append\n")
    shown = run("run", "pipeline.yaml")
    assert shown.exit_code == 2
    assert "pipeline.yaml:5: " in shown.stderr
    assert "did you mean 'mode'" in shown.stderr


def test_a_dry_run_tells_and_does_nothing(pipeline: Path, run: Run, orders: Table) -> None:
    head = orders.refresh().metadata.current_snapshot_id
    shown = run("run", "pipeline.yaml", "--dry-run")
    assert shown.exit_code == 0, shown.stderr
    assert "would be a new run" in shown.stdout
    assert "copy: run, replace into shop.copy, after changes" in shown.stdout
    assert "tests: unique id; rows max 1801" in shown.stdout
    assert not (pipeline.parent / "icestream_state").exists()
    assert orders.refresh().metadata.current_snapshot_id == head


def test_a_repeated_append_says_that_it_is_already_loaded(
    orders: Table, folder: Path, run: Run
) -> None:
    text = (
        "{defaults: {engine: local}, loads: {copy: {source: 'table:shop.orders', into: shop.copy}}}"
    )
    (folder / "pipeline.yaml").write_text(text)
    assert run("run", "pipeline.yaml", "-q").exit_code == 0
    shown = run("run", "pipeline.yaml")
    assert shown.exit_code == 0
    assert "copy  already loaded  shop.copy  -" in shown.stdout
    assert "copy already loaded: the same inputs were appended before: --again" in shown.stderr
    assert "copy: already loaded, append" in run("run", "pipeline.yaml", "--dry-run").stdout
    document = json.loads(run("run", "pipeline.yaml", "--json", "-q").stdout)
    assert document["loads"][0]["status"] == "already loaded"
    again = json.loads(run("run", "pipeline.yaml", "--again", "--json", "-q").stdout)
    assert again["loads"][0]["status"] == "done"
    assert again["loads"][0]["report"]["rows_inserted"] == ROWS


def test_the_json_schema_needs_no_pipeline(run: Run) -> None:
    shown = run("run", "--json-schema")
    assert (shown.exit_code, shown.stderr) == (0, "")
    schema = json.loads(shown.stdout)
    assert set(schema["properties"]) == {"name", "catalog", "defaults", "loads"}


def test_a_failed_load_says_why_once_and_that_it_published_nothing(
    pipeline: Path, run: Run
) -> None:
    (pipeline.parent / "bad.csv").write_text("id,price\n6000,1\n6001,2\n")
    shown = run("run", "pipeline.yaml", "--var", "FILE=bad.csv")
    reason = "there may be at most 1,801"
    assert (shown.stdout + shown.stderr).count(reason) == 1
    assert "icestream: changes failed: 1 of 2 tests on the result failed: rows max" in shown.stderr
    assert "1 of 2 loads of 'shop' failed: changes. Fix the cause" in shown.stderr
    row = next(line for line in shown.stdout.splitlines() if line.startswith("changes"))
    assert row.split()[:6] == ["changes", "failed", "shop.orders", "0", "0", "0"]
    quiet = run("run", "pipeline.yaml", "--var", "FILE=bad.csv", "-q")
    assert quiet.stderr.count(reason) == 1


def test_messages_about_a_pipeline_name_the_keys_of_the_file(pipeline: Path, run: Run) -> None:
    (pipeline.parent / "other.yaml").write_text(
        "loads: {a: {source: changes.csv, into: shop.orders, checkpoint: x}}"
    )
    shown = run("run", "other.yaml")
    assert "give incremental: true, too" in shown.stderr
