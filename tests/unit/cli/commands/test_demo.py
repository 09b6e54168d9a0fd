"""`icestream demo`, at a size that takes seconds: what it makes, prints and leaves alone."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from icestream.cli.main import cli
from tests.unit.cli.conftest import Run

_LOCAL = next(line for line in cli.commands["demo"].examples if "--engine local" in line)


def _icestream(
    folder: Path, *arguments: str, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    """As a user who has configured nothing."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{path}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    command = [sys.executable, "-m", "icestream", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def _in_bash(folder: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder)},
        capture_output=True,
        text=True,
    )


def _path_without_java(folder: Path) -> str:
    """A folder with all programs of the path but Java."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*"):
            (folder / program.name).unlink(missing_ok=True)
            (folder / program.name).symlink_to(program)
    (folder / "java").unlink(missing_ok=True)
    assert shutil.which("java", path=str(folder)) is None
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def shown(folder: Path) -> str:
    """What the example of the help prints."""
    done = _icestream(folder, *shlex.split(_LOCAL)[1:])
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def document(shown: str, folder: Path) -> dict[str, Any]:
    """What it prints as JSON, the second time in the same folder."""
    done = _icestream(folder, *shlex.split(_LOCAL)[1:], "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_it_tells_the_loads_the_peaks_and_draws_them(shown: str) -> None:
    for load in ("orders   done", "changes  done", "daily    done"):
        assert load in shown
    assert "the same rows" in shown
    assert "of 64 MB; PyIceberg's is" in shown
    assert "█ icestream   ░ PyIceberg" in shown


@pytest.mark.slow
def test_a_second_demo_replaces_the_first_and_its_rows_are_exact(document: dict[str, Any]) -> None:
    orders, changes, daily = document["run"]["loads"]
    assert orders["report"]["rows_inserted"] == document["orders"] == 20_000
    assert [load["report"]["mode"] for load in (orders, changes, daily)] == [
        "append",
        "merge",
        "replace",
    ]
    assert changes["report"]["rows_updated"] > 0 < changes["report"]["rows_deleted"]
    left = 20_000 + changes["report"]["rows_inserted"] - changes["report"]["rows_deleted"]
    assert [read["rows"] for read in document["reads"]] == [left, left]
    assert document["same_rows"] is True
    assert all(test["passed"] for load in document["run"]["loads"] for test in load["tests"])


@pytest.mark.slow
def test_icestream_stays_inside_the_limit(document: dict[str, Any]) -> None:
    ours = document["reads"][0]
    assert ours["reader"] == "icestream"
    assert 0 < ours["arrow_peak_bytes"] <= document["memory_limit_bytes"] == 64_000_000


@pytest.mark.slow
def test_the_picture_is_svg(document: dict[str, Any]) -> None:
    root = ET.parse(document["picture"]).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall("{*}polygon")) == 2


@pytest.mark.slow
def test_the_commands_that_it_prints_work_as_pasted(document: dict[str, Any], folder: Path) -> None:
    done = _in_bash(folder, document["commands"])
    assert done.returncode == 0, done.stderr
    assert "shop.orders" in done.stdout
    assert "cancelled" in done.stdout


@pytest.mark.slow
def test_its_pipeline_run_again_finds_nothing_new(document: dict[str, Any], folder: Path) -> None:
    again = "icestream run .demo/pipeline.yaml --state .demo/state --var ENGINE=local --json"
    done = _in_bash(folder, [document["commands"][0], again])
    assert done.returncode == 0, done.stderr
    orders, changes, _ = json.loads(done.stdout)["loads"]
    assert orders["report"]["rows_inserted"] == 0
    assert changes["report"]["rows_updated"] == 0


def test_a_folder_that_no_demo_has_made_is_left_alone(run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "mine" / "thesis.txt"
    kept.parent.mkdir()
    kept.touch()
    done = run("demo", "--rows", "1000", "--engine", "local", "--folder", str(kept.parent))
    assert done.exit_code == 2
    assert "--folder" in done.stderr
    assert kept.exists()


@pytest.mark.soak
def test_on_spark_it_comes_to_the_same_with_no_java_on_the_path(
    document: dict[str, Any], tmp_path: Path
) -> None:
    path = _path_without_java(tmp_path / "bin")
    done = _icestream(tmp_path, "demo", "--rows", "20000", "--json", "-q", path=path)
    assert done.returncode == 0, done.stderr
    spark = json.loads(done.stdout)
    assert [load["report"]["engine"] for load in spark["run"]["loads"]] == ["spark"] * 3
    assert [
        (read["rows"], read["sum_of_ids"]) for read in (*spark["reads"], *document["reads"])
    ] == [(spark["reads"][0]["rows"], spark["reads"][0]["sum_of_ids"])] * 4
