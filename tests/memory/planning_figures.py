"""Prints what planning takes beside PyIceberg: `python -m tests.memory.planning_figures`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.memory import measured_planning as plans
from tests.support.process import run_in_fresh_process

_PLANS = (
    plans.one_by_one,
    plans.half,
    plans.as_a_list,
    plans.ten_rows,
    plans.new_files,
    plans.by_pyiceberg,
    plans.half_by_pyiceberg,
)


def main() -> None:
    """Make the table, and plan it in a fresh process each time."""
    with tempfile.TemporaryDirectory() as folder:
        plans.make_table(Path(folder))
        for plan in _PLANS:
            report = run_in_fresh_process(plans.measured, folder, plan, timeout_seconds=900)
            found, seconds = report.result
            growth = report.peak_rss_growth_bytes / 1e6
            sys.stdout.write(
                f"{plan.__name__}: {found} found, {seconds:.2f} CPU-s, {growth:.0f} MB\n"
            )


if __name__ == "__main__":
    main()
