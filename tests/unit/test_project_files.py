"""The files that describe the project agree with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "docs/versioning.md", "examples/README.md")


def _make_targets() -> set[str]:
    makefile = (REPOSITORY / "Makefile").read_text()
    return set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


@pytest.mark.parametrize("name", PAGES)
def test_every_path_that_a_page_names_exists(name: str) -> None:
    folders = "src|tests|docs|benchmarks|examples|\\.ci|\\.github"
    text = (REPOSITORY / name).read_text()
    paths = re.findall(rf"(?<![\w/.])((?:{folders})/[\w./-]+\w)", text)
    assert paths
    assert not [path for path in paths if not (REPOSITORY / path).exists()]


@pytest.mark.parametrize("name", PAGES)
def test_every_make_target_that_a_page_names_exists(name: str) -> None:
    commands = re.findall(r"(?:^ *|`)make ((?:[a-z-]+ ?)+)", (REPOSITORY / name).read_text(), re.M)
    named = {target for command in commands for target in command.split()}
    assert named <= _make_targets()


def test_every_name_that_the_worked_examples_extend_exists() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text()
    code = "".join(path.read_text() for path in (REPOSITORY / "src").rglob("*.py"))
    code += (REPOSITORY / "tests" / "support" / "partitions.py").read_text()
    names = set(re.findall(r"`(_[A-Z_]+|_[a-z_]+|[A-Z_]{4,}|FileFormat|SourceFormat)`", text))
    names -= {"DEBUG", "_npy_header", "_write"}
    assert {"FORMATS", "_TIMES", "_HOMES", "FileFormat"} <= names
    assert not [name for name in names if not re.search(rf"\b{name}\b", code)]


def test_the_workflow_runs_the_targets_of_the_ci_scripts() -> None:
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())
    targets = workflow["jobs"]["change"]["strategy"]["matrix"]["target"]
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert targets == re.findall(r"^(?:make|suite) ([a-z-]+)", script, re.MULTILINE)
    assert set(targets) <= _make_targets()
    assert workflow["jobs"]["nightly"]["steps"][-1]["run"] == ".ci/nightly"


def test_hooks_before_a_commit_run_the_linters_of_make_lint() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"], "downloads nothing"
    entries = {hook["entry"].split()[0] for hook in hooks[0]["hooks"]}
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.M)
    assert recipe is not None
    linters = set(re.findall(r"\$\(BIN\)/([\w-]+)", recipe[1]))
    assert {f".venv/bin/{linter}" for linter in linters} <= entries
