"""What the documents say can be pasted: every block of Python and of commands runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.documents import (
    DOCUMENTS,
    REPOSITORY,
    SPARK_DOCUMENTS,
    Block,
    blocks_of,
    comparable,
    with_outputs,
)

pytestmark = pytest.mark.timeout(600)


def _run_all(documents: list[str], folder: Path) -> dict[str, Any]:
    """Run documents in one process."""
    command = [sys.executable, "-m", "tests.docs.run_documents", str(folder), *documents]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Most documents."""
    return _run_all(_OTHERS, tmp_path_factory.mktemp("documents"))


@pytest.fixture(scope="module")
def spark_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Those of Spark."""
    return _run_all(SPARK_DOCUMENTS, tmp_path_factory.mktemp("documents"))


_OTHERS = [name for name in DOCUMENTS if name not in SPARK_DOCUMENTS]


@pytest.mark.slow
@pytest.mark.parametrize("name", _OTHERS)
def test_every_block_of_a_document_runs(name: str, results: dict[str, Any]) -> None:
    assert not results[name]["failed"], results[name]["failed"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SPARK_DOCUMENTS)
def test_every_block_of_a_document_about_spark_runs(
    name: str, spark_results: dict[str, Any]
) -> None:
    assert not spark_results[name]["failed"], spark_results[name]["failed"][0]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_block_that_is_not_run_says_why(name: str) -> None:
    for block in blocks_of((REPOSITORY / name).read_text()):
        assert block.reason is None or len(block.reason.split()) >= 3, f"{name}:{block.line}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_make_target_that_a_document_names_is_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^|`)make ([a-z-]+)", (REPOSITORY / name).read_text(), re.MULTILINE)
    assert set(named) <= targets


def test_links_between_documents_lead_somewhere() -> None:
    for name in DOCUMENTS:
        document = REPOSITORY / name
        for link in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", document.read_text()):
            assert (document.parent / link).exists(), f"{name}: {link}"


def test_every_measured_figure_of_the_readme_is_in_the_benchmarks() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    text = readme.partition("\n## Figures\n")[2].partition("\n## Limits\n")[0]
    figures = set(re.findall(r"(?<![\w.])\d[\d.]*(?= (?:M rows/s|s\b|MB,|MB \|))", text))
    measured = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    known = set(re.findall(r"(?<![\w.])\d[\d.]*\d", measured))
    limits = {"64", "128", "256"}
    assert len(figures - limits) > 20
    assert figures - limits <= known


def test_blocks_and_comments_are_told_apart() -> None:
    text = """
<!-- run first
x = 1
-->
```python
x += 1
```
<!-- not run: needs a cluster -->

```console
$ icestream tables    # all
icestream scan t \\
    --limit 1
```
```yaml
a: 1
```
"""
    assert blocks_of(text) == [
        Block("python", "x = 1\n", 3),
        Block("python", "x += 1\n", 6),
        Block(
            "console",
            "$ icestream tables    # all\nicestream scan t \\\n    --limit 1\n",
            11,
            "needs a cluster",
        ),
    ]
    assert blocks_of(text)[2].commands() == ["icestream tables", "icestream scan t --limit 1"]


def test_a_block_that_fails_is_told_by_its_line(tmp_path: Path) -> None:
    from tests.docs.run_documents import _run

    block = Block("python", "1 / 0\n", 7)
    (failed,) = _run("some.md", [block])
    assert 'File "some.md", line 7' in failed
    assert "ZeroDivisionError" in failed
    assert _run("some.md", [Block("python", "1 / 0\n", 7, "it fails")]) == []


_WITH_OUTPUT = """
```python
print("some text")
```

<!-- output -->
```text
some text
```
"""


def test_an_output_belongs_to_the_block_before_it() -> None:
    assert blocks_of(_WITH_OUTPUT) == [
        Block("python", 'print("some text")\n', 3, output="some text\n")
    ]


def test_a_block_that_prints_something_else_fails() -> None:
    from tests.docs.run_documents import _run

    assert _run("some.md", blocks_of(_WITH_OUTPUT)) == []
    (failed,) = _run("some.md", [Block("python", "print(2)\n", 7, output="1\n")])
    assert "it prints:\n2" in failed


def test_outputs_are_written_into_the_document() -> None:
    from tests.docs.run_documents import _run

    outputs: list[str] = []
    stale = _WITH_OUTPUT.replace("\nsome text\n", "\nold\\1\n")
    assert _run("some.md", blocks_of(stale), outputs) == []
    assert with_outputs(stale, outputs) == _WITH_OUTPUT


def test_outputs_are_compared_without_measurements_and_snapshot_ids() -> None:
    assert comparable("held 4.4 MB in 0.3 s") == comparable("held 1,204 MB in 12 s")
    assert comparable("snapshot 4815162342481516234") == comparable("snapshot 1234567890123456789")
    assert comparable("3 rows") != comparable("4 rows")


def test_every_path_in_the_architecture_exists() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    source = REPOSITORY / "src" / "icestream"
    tree = re.search(r"```\nsrc/icestream/\n(.*?)```", text, re.DOTALL)
    assert tree is not None
    folders: list[str] = []
    paths: list[str] = []
    for line in tree[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        folders[depth:] = [line.split()[0]]
        paths.append("".join(folders))
    shown = {path.rstrip("/") for path in paths}
    packages = {path.parent for path in source.glob("*/__init__.py")}
    assert {package.name for package in packages} <= shown
    paths += re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text.replace(tree[0], ""))
    merge = source / "operations" / "merge"
    for path in paths:
        assert (source / path).exists() or (merge / path).exists(), path
