"""The state folder: complete files, and reports of earlier loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from icestream.pipeline.reports.load_report import LoadReport
from icestream.pipeline.reports.state_folder import (
    StateFolder,
    newest_reports,
    safe_name,
    store_report,
    write_json,
)


def _report(load: str, rows: int = 0) -> LoadReport:
    return LoadReport(load, "db.t", "append", "local", rows_inserted=rows)


def test_the_folder_is_given_or_in_the_environment_or_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ICESTREAM_STATE", raising=False)
    assert StateFolder().path == tmp_path / "icestream_state"
    monkeypatch.setenv("ICESTREAM_STATE", str(tmp_path / "env"))
    assert StateFolder().path == tmp_path / "env"
    assert StateFolder(tmp_path / "own").path == tmp_path / "own"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "safe"), [("db.orders", "db.orders"), ("a/b c", "a_b_c"), ("..", "_"), ("", "_")]
)
def test_names_become_parts_of_a_path(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_file_that_can_not_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.json"
    write_json(path, {"a": "ü"})
    loop: dict[str, object] = {}
    loop["loop"] = loop
    with pytest.raises(ValueError, match="Circular"):
        write_json(path, loop)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ü"}
    assert list(path.parent.iterdir()) == [path]


def test_reports_of_a_load_come_newest_first_and_damaged_ones_are_skipped(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    assert list(newest_reports(state, "orders")) == []
    for load, rows in (("orders", 1), ("orders-eu", 9), ("orders", 2)):
        stored = store_report(_report(load, rows), state)
        assert stored.report_file is not None
    (state.reports / "99991231T000000.0Z-orders-damaged.json").write_text("{")
    assert [each["rows_inserted"] for each in newest_reports(state, "orders")] == [2, 1]


def test_a_report_that_can_not_be_stored_fails_no_load(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "reports").write_text("a file")
    assert store_report(_report("orders"), StateFolder(tmp_path)).report_file is None
    assert "the report of orders could not be stored" in caplog.text
    assert store_report(_report("orders"), None).report_file is None
