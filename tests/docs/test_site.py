"""`make docs` builds the site, strictly, and the reference has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import icestream as ice
from tests.docs.documents import REPOSITORY

# Half a minute of work: run by make test-long.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_reference_has_every_public_name(site: Path) -> None:
    pages = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    shown = {name.rpartition(".")[2] for name in re.findall(r'<h\d id="([\w.]+)"', pages)}
    assert set(ice.__all__) - {"__version__"} <= shown


def test_the_docstrings_become_tables_of_arguments(site: Path) -> None:
    page = (site / "reference" / "read" / "index.html").read_text()
    assert "The most bytes that the scan holds" in page


def test_comments_for_the_tests_are_not_shown(site: Path) -> None:
    page = (site / "tutorial" / "index.html").read_text()
    assert "pathlib.Path" not in re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)


def test_every_document_is_in_the_navigation() -> None:
    nav = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:")[2]
    for path in (REPOSITORY / "docs").rglob("*.md"):
        assert f": {path.relative_to(REPOSITORY / 'docs').as_posix()}\n" in nav, path
