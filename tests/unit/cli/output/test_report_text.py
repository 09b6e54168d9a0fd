"""Reports as text: what happened first, and no figures that are zero."""

from __future__ import annotations

import pytest

from icestream.cli.output.report_text import load_text, plan_text, write_text
from icestream.pipeline.load_plan import LoadPlan
from icestream.pipeline.reports.load_report import LoadReport
from icestream.report.write_report import MergeReport, WriteReport


@pytest.mark.parametrize(
    ("report", "head"),
    [
        (WriteReport("append", 7), "db.t: snapshot 7"),
        (WriteReport("append", None), "db.t: nothing to change, so there is no new snapshot"),
        (
            WriteReport("append", 7, already_committed=True),
            "db.t: already loaded: a load with this id was committed before; nothing was done",
        ),
    ],
    ids=["new", "nothing", "before"],
)
def test_the_first_line_says_what_became_of_a_write(report: WriteReport, head: str) -> None:
    assert write_text("db.t", report)[0] == head


def test_figures_that_are_zero_are_left_out() -> None:
    text = "\n".join(write_text("db.t", MergeReport("overwrite", 7, rows_updated=1234)))
    assert "rows updated    1,234" in text
    assert "rows inserted" not in text
    assert "rows superseded" not in text


def test_inputs_that_were_loaded_name_the_option_that_loads_them_again() -> None:
    report = LoadReport(
        "a", "db.t", "append", "local", snapshot_id=7, already_committed=True, load_id="inputs:a:b"
    )
    head, by = load_text(report)
    assert "already loaded; nothing was done (--again" in head
    assert by == "  by snapshot 7"


def test_a_plan_says_that_nothing_was_changed() -> None:
    plan = LoadPlan("a", "db.t", "append", "local", creates_table=True, notes=("a note",))
    lines = plan_text(plan)
    assert lines[0] == "would create db.t and append (dry run: nothing was changed)"
    assert lines[-1] == "  note: a note"
