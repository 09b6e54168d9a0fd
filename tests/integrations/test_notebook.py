"""Progress in a notebook, with the two names of IPython that it uses."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

import icestream as ice
from icestream.integrations.notebook import NotebookProgress
from tests.support.tables import make_catalog

ROWS = pa.table({"id": range(1000)})


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All states of the display."""
    pages: list[str] = []
    handle = types.SimpleNamespace(update=pages.append)
    module = types.ModuleType("IPython.display")
    module.HTML = str  # type: ignore[attr-defined]
    module.display = lambda page, display_id: pages.append(page) or handle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return pages


def test_loads_compactions_and_scans_show_their_progress(tmp_path: Path, pages: list[str]) -> None:
    pa.csv.write_csv(ROWS, tmp_path / "a.csv")
    catalog = make_catalog(tmp_path)
    with NotebookProgress() as progress:
        source = str(tmp_path / "*.csv")
        ice.load(source, "db.t", catalog=catalog, engine="local", progress=progress)
    assert "opening" in pages[0]
    assert "1,000" in pages[-1]
    assert "1 of 1" in pages[-1]
    table = catalog.load_table("db.t")
    ice.append(table, ROWS)
    with NotebookProgress() as progress:
        ice.compact(table, progress=progress)
    assert "compacting" in pages[-1]
    assert "2,000" in pages[-1]
    with NotebookProgress() as progress:
        assert sum(b.num_rows for b in progress.over(ice.scan(table, memory="8MB"))) == 2000
    assert "of 8 MB" in pages[-1]
    catalog.close()


def test_without_ipython_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(ice.MissingExtraError, match="NotebookProgress needs IPython: pip install"):
        NotebookProgress()
