"""`make docs` builds the site, strictly, and the reference has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import icestream as ice
import icestream.spark as ice_spark
from tests.docs.documents import REPOSITORY

# Half a minute of work: run by make test-long.
pytestmark = pytest.mark.slow
MKDOCS = REPOSITORY / "mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_public_name_is_a_heading_of_the_reference(site: Path) -> None:
    pages = "".join(page.read_text() for page in (site / "reference").rglob("*.html"))
    headings = set(re.findall(r'<h2 id="([\w.]+)"', pages))
    public = {f"icestream.{name}" for name in ice.__all__ if name != "__version__"}
    public |= {f"icestream.spark.{name}" for name in ice_spark.__all__}
    assert public <= headings


def test_a_docstring_that_is_cut_off_fails_the_build() -> None:
    assert "docstring_options:\n              warnings: true" in MKDOCS.read_text()


def test_the_docstrings_become_lists_of_arguments(site: Path) -> None:
    page = (site / "reference" / "read" / "index.html").read_text()
    assert "Maximum number of rows in a batch" in page


def test_wrapped_descriptions_of_scan_are_complete(site: Path) -> None:
    page = (site / "reference" / "read" / "index.html").read_text()
    text = " ".join(re.sub(r"<[^>]+>", "", page).split())
    assert "columns, snapshot, limit, case sensitivity and options" in text
    assert "or milliseconds since 1970" in text
    assert "MemoryBudget shared with other work" in text


def test_comments_for_the_tests_are_not_shown(site: Path) -> None:
    page = (site / "tutorial" / "index.html").read_text()
    assert "pathlib.Path" not in re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)


def test_every_document_is_in_the_navigation() -> None:
    nav = MKDOCS.read_text().partition("\nnav:")[2]
    for path in (REPOSITORY / "docs").rglob("*.md"):
        assert f": {path.relative_to(REPOSITORY / 'docs').as_posix()}\n" in nav, path
