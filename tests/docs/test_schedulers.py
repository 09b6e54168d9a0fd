"""The examples for schedulers compile. Running them needs the schedulers."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields

import pytest
import yaml

import icestream as ice
from icestream.pipeline.reports.run_report import LoadOutcome
from tests.docs.documents import REPOSITORY, blocks_of

PAGE = REPOSITORY / "docs" / "guides" / "schedulers.md"


def _fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("scheduler", ["airflow", "dagster", "prefect", "dbt"])
def test_the_example_of_a_scheduler_compiles_and_uses_names_that_exist(scheduler: str) -> None:
    blocks = blocks_of(PAGE.read_text())
    (code,) = (b.code for b in blocks if scheduler in b.code and b.code.startswith("# "))
    compile(code, scheduler, "exec")
    assert set(re.findall(r"\bice\.(\w+)", code)) <= set(ice.__all__)
    assert set(re.findall(r"\bload\.(\w+)", code)) <= {each.name for each in fields(LoadOutcome)}


def test_the_line_of_the_crontab_is_a_command() -> None:
    (crontab,) = _fenced("text")
    schedule = re.compile(r"^\d+ \d+ \* \* \* (.*)$", re.MULTILINE)
    (command,) = schedule.findall(crontab)
    subprocess.run(["bash", "-n", "-c", command], check=True)


def test_the_container_runs_the_pipeline() -> None:
    (dockerfile,) = _fenced("dockerfile")
    words = {
        name: json.loads(line) for name, line in re.findall(r"^(\w+) (\[.*\])$", dockerfile, re.M)
    }
    assert [*words["ENTRYPOINT"], *words["CMD"]] == ["icestream", "run", "pipeline.yaml"]


def test_the_pipeline_of_the_page_is_the_one_that_its_commands_run() -> None:
    shown, _ = (yaml.safe_load(text) for text in _fenced("yaml"))
    (run,) = re.findall(r"'''\n(.*?)'''", PAGE.read_text(), re.DOTALL)
    assert yaml.safe_load(run) == shown
