"""A small version of the benchmarks, so that they keep running."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.cases.read_case import Case
from benchmarks.data.big_files import CHANGED, BigFiles
from benchmarks.history import INTRODUCTION, RESULTS, main, table
from benchmarks.measure.results import Result

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_goal_table_runs_at_a_small_scale_and_counts_every_row(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.run", "--root", str(tmp_path)]
    command += ["--scale", "0.002", "--sets", "a,c,e", "--engines", "pyiceberg,icestream"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(p.read_text()) for p in tmp_path.glob("results/**/*.json")]
    rows = {(r["case"]["dataset"], r["case"]["engine"]): r["runs"][0]["rows"] for r in results}
    assert {name for name, _ in rows} == {"a", "c", "e"}
    for name in ("a", "c", "e"):
        assert rows[name, "icestream"] == rows[name, "pyiceberg"] > 0


@pytest.mark.slow
def test_a_benchmark_measures_another_commit_beside_this_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.run", "--root", str(tmp_path)]
    command += ["--scale", "0.002", "--sets", "a", "--engines", "icestream"]
    done = subprocess.run(
        [*command, "--baseline", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = [json.loads(p.read_text()) for p in tmp_path.glob("results/**/*.json")]
    assert {r["case"]["baseline"] for r in results} == {None, "HEAD"}
    assert len({r["runs"][0]["rows"] for r in results}) == 1
    taken_from = {r["runs"][0]["versions"]["icestream from"] for r in results}
    assert len(taken_from) == 2


@pytest.mark.soak
def test_the_write_table_runs_at_a_small_scale_and_every_row_is_in_the_table(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "benchmarks.write", "--root", str(tmp_path)]
    command += ["--scale", "0.002", "--cases", "narrow,wide"]
    command += ["--engines", "pyiceberg,icestream"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (saved,) = tmp_path.glob("results/*-write.json")
    results = json.loads(saved.read_text())["results"]
    assert len(results) == 4
    for result in results:
        (run,) = result["runs"]
        assert run["rows"] == run["rows_written"] > 0
        assert run["snapshots"] == 1


@pytest.mark.soak
def test_the_merge_table_runs_at_a_small_scale_and_all_engines_change_the_same_rows(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "benchmarks.merge", "--root", str(tmp_path)]
    command += ["--scale", "0.001", "--cases", "10k"]
    command += ["--engines", "pyiceberg,icestream,icestream-mor"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (saved,) = tmp_path.glob("results/*-merge.json")
    results = json.loads(saved.read_text())["results"]
    runs = {result["case"]["engine"]: result["runs"][0] for result in results}
    assert {(run["updated"], run["inserted"]) for run in runs.values()} == {(9, 1)}
    assert runs["icestream"]["snapshots"] == runs["icestream-mor"]["snapshots"] == 1


def test_big_files_are_the_same_every_time_and_as_large_as_was_asked_for(tmp_path: Path) -> None:
    files = [BigFiles(tmp_path / name, 2_000_000) for name in ("one", "two")]
    sizes = [each.make() for each in files]
    assert 0.9 < sizes[0] / 2_000_000 < 1.1
    tables = [pq.read_table(each.folder / "orders") for each in files]
    assert tables[0] == tables[1]
    assert tables[0].num_columns == 20
    assert tables[0]["id"].to_pylist() == list(range(files[0].rows))
    changes = pq.read_table(files[0].folder / "changes")
    assert set(changes["status"].to_pylist()) == {CHANGED}
    assert changes["id"][0].as_py() == files[0].changed_from
    assert changes.num_rows == files[0].changed_rows + files[0].new_rows


def _save_run(folder: Path, stamp: str, rates: dict[str, float]) -> None:
    for engine, rate in rates.items():
        memory = "64MB" if engine == "icestream" else None
        case = Case(str(folder), "a", "bench.a", engine, memory=memory)
        figures = {"rows": 1000, "rows_per_second": rate, "first_batch_seconds": 0.5}
        figures |= {"cpu_seconds": 1.5, "arrow_growth_bytes": 2e6, "rss_growth_bytes": 3e6}
        Result(case, [{**figures, "versions": {"pyarrow": "26.0.1"}}]).save(folder, stamp)


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Keep the results below `tmp_path` under a version; returns the list of versions."""

    def run(version: str) -> str:
        arguments = ["--root", str(tmp_path), "--results", str(tmp_path / "kept")]
        monkeypatch.setattr(sys, "argv", ["history", *arguments, "--version", version])
        main()
        return (tmp_path / "kept" / "README.md").read_text()

    return run


def test_results_are_kept_by_version_with_a_list_of_all_versions(
    tmp_path: Path, keep: Callable[[str], str]
) -> None:
    _save_run(tmp_path / "results", "20260101T000000", {"pyiceberg": 1e6, "icestream": 2e6})
    keep("0.9.0")
    _save_run(tmp_path / "results", "20260201T000000", {"pyiceberg": 1e6, "icestream": 3e6})
    keep("0.10.0.dev0")
    text = keep("0.10.0")
    lines = [line.replace(" ", "").split("|")[1:-1] for line in text.splitlines() if "64MB" in line]
    assert [(line[0], line[5], line[6]) for line in lines] == [
        ("0.9.0", "2.000", "2.00x"),
        ("0.10.0.dev0", "3.000", "3.00x"),
        ("0.10.0", "3.000", "3.00x"),
    ]
    kept = json.loads((tmp_path / "kept" / "0.9.0.json").read_text())
    assert kept["measured"] == "20260101T000000"
    assert kept["versions"] == {"pyarrow": "26.0.1"}
    assert [case["engine"] for case in kept["cases"]] == ["icestream", "pyiceberg"]


def test_keeping_results_without_a_run_says_what_to_run(keep: Callable[[str], str]) -> None:
    with pytest.raises(SystemExit, match=r"run python -m benchmarks\.run first"):
        keep("0.9.0")


def test_the_list_of_versions_is_the_one_that_the_kept_results_give() -> None:
    kept = [json.loads(path.read_text()) for path in RESULTS.glob("*.json")]
    assert kept
    assert (RESULTS / "README.md").read_text() == INTRODUCTION + table(kept)
