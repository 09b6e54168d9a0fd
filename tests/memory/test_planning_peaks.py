"""Planning 100,000 files stays inside the limit, in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table

from tests.memory import measured_planning as plans
from tests.support.process import run_in_fresh_process

_MB = 1_000_000
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a table of 100,000 files with 50 columns."""
    folder = tmp_path_factory.mktemp("many")
    plans.make_table(Path(folder))
    return str(folder)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (plans.one_by_one, plans.FILES),
        (plans.half, plans.FILES // 2),
        (plans.as_a_list, plans.FILES),
        (plans.ten_rows, 10),
        (plans.new_files, plans.FILES),
    ],
)
def test_a_plan_of_100_000_files_stays_inside_the_limit(
    many_files: str, plan: Callable[[Table], int], expected: int
) -> None:
    report = run_in_fresh_process(plans.measured, many_files, plan, timeout_seconds=600)
    assert report.result[0] == expected
    assert report.peak_rss_growth_bytes <= 128 * _MB


def test_what_pyiceberg_plans_would_not(many_files: str) -> None:
    """The measurement tells them apart."""
    args = many_files, plans.by_pyiceberg
    report = run_in_fresh_process(plans.measured, *args, timeout_seconds=600)
    assert report.result[0] == plans.FILES
    assert report.peak_rss_growth_bytes > 128 * _MB
