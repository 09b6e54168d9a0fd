"""Progress and timing of a load."""

from __future__ import annotations

import pytest

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.pipeline.reports.load_progress import LoadProgress, Stages, peak_process_bytes


def test_a_load_that_starts_to_read_begins_at_zero() -> None:
    progress = LoadProgress(rows=5, bytes=6, files=7, tasks=8, tasks_total=9)
    budget = MemoryBudget("1MB")
    progress.begin(3, budget=budget)
    assert (progress.rows, progress.bytes, progress.files, progress.tasks) == (0, 0, 0, None)
    assert (progress.files_total, progress.stage) == (3, "loading")
    lease = budget.force(100)
    assert (progress.bytes_held, progress.limit_bytes) == (100, 1_000_000)
    lease.release()


@pytest.mark.parametrize(
    "call",
    [
        lambda: ice.load("a.csv", into="a.b", progress=True),
        lambda: ice.compact("a.b", progress=True),
    ],
)
def test_progress_that_is_no_object_is_refused_before_anything_runs(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ice.InvalidArgumentError, match=r"progress is True: pass .*NotebookProgress"
    ):
        call()
    assert not list(tmp_path.iterdir())


def test_without_a_budget_the_limit_stays_and_held_bytes_are_unknown() -> None:
    progress = LoadProgress(limit_bytes=5)
    progress.begin(None, budget=None)
    assert (progress.bytes_held, progress.limit_bytes) == (None, 5)


def test_times_of_the_same_stage_are_added_even_if_it_fails() -> None:
    stages = Stages()
    with stages.stage("open"):
        pass
    stages.add("load", 2.0)
    with pytest.raises(KeyError), stages.stage("open"):
        raise KeyError
    stages.add("load", 1.0)
    assert list(stages.seconds) == ["open", "load"]
    assert stages.seconds["load"] == 3.0
    assert stages.total >= stages.seconds["open"]


def test_the_peak_of_the_process_is_known() -> None:
    assert peak_process_bytes() > 1_000_000
