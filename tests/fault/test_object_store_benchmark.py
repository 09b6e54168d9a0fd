"""A small version of the object store's benchmark, so that it keeps running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_benchmark_runs_at_a_small_scale_and_counts_requests(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.object_store", "--root", str(tmp_path)]
    command += ["--scale", "0.02", "--files", "2", "--repeat", "1", "--latency-ms", "0"]
    done = subprocess.run(
        [*command, "--memory", "64MB"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(p.read_text()) for p in tmp_path.glob("results/*.json")]
    runs = {(r["case"]["engine"], r["case"]["prefetch"]): r["runs"][0] for r in results}
    ahead, plain = runs["icestream", True], runs["icestream", False]
    assert ahead["rows"] == plain["rows"] == runs["pyiceberg", True]["rows"] == 2 * 7_200
    assert ahead["requests"] == 2 * 3, "a HEAD, a footer and a row group for each file"
    assert plain["requests"] > ahead["requests"]
