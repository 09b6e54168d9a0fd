"""The report of a run, and errors in its words."""

from __future__ import annotations

import json

import pytest

import icestream as ice
from icestream.pipeline.reports.load_report import LoadReport
from icestream.pipeline.reports.run_report import LoadOutcome, RunReport, in_words
from icestream.pipeline.request.checks import CheckResult

_FAILED = CheckResult("unique id", "unique", False, 2, "2 keys twice", ("7", "8"))
_REPORT = RunReport(
    "shop",
    "run-1",
    resumed=False,
    completed=False,
    ended=True,
    loads=(
        LoadOutcome("a", "done", report=LoadReport("a", "db.a", "append", "local", rows_read=3)),
        LoadOutcome("b", "failed", reason="its tests failed", tests=(_FAILED,)),
    ),
)


def test_an_outcome_is_found_by_the_name_of_its_load() -> None:
    assert _REPORT["b"].reason == "its tests failed"
    with pytest.raises(KeyError, match="c"):
        _REPORT["c"]


def test_the_report_is_a_document_with_the_reports_of_its_loads_and_tests() -> None:
    document = json.loads(json.dumps(_REPORT.to_dict()))
    assert document["loads"][0]["report"]["rows_read"] == 3
    assert document["loads"][1]["tests"][0]["examples"] == ["7", "8"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ice.SourceError("a.csv, line 2: bad."), "a.csv, line 2: bad"),
        (ice.SourceError(""), "SourceError"),
        (ValueError("bad"), "ValueError: bad"),
        (KeyError(), "KeyError: KeyError"),
    ],
    ids=repr,
)
def test_errors_of_others_are_named_by_their_type(error: Exception, text: str) -> None:
    assert in_words(error) == text
