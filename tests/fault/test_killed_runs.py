"""A pipeline that is killed hurts no table, and the next run does what is missing, once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.killed_runs import KILLED

_SHARES = 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "share", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, _SHARES))]
)
def test_a_run_that_is_killed_at_any_step_is_finished_exactly_once(
    tmp_path: Path, share: int
) -> None:
    module = "tests.support.killed_runs"
    done = subprocess.run(
        [sys.executable, "-m", module, str(tmp_path), str(share), str(_SHARES)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    whole, *kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert (whole["wrong"], whole["ended"]) == ([], True)
    assert len(kills) > 8
    for kill in kills:
        assert kill["codes"] == [KILLED, 0], (kill, done.stderr)
        assert kill["after_kill"]["wrong"] == [], kill
        assert kill["at_end"] == {"wrong": [], "ended": True}, kill
