"""Candidates: a list of files on disk is read as it was written, any number of times."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.folder import Folder
from icestream.operations.upkeep.orphan_search import candidates
from icestream.operations.upkeep.orphan_search.candidates import Candidates


@pytest.mark.parametrize("in_memory_bytes", [1, 1 << 20], ids=["on disk", "in memory"])
def test_files_are_restored_in_their_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory_bytes: int
) -> None:
    monkeypatch.setattr(candidates, "_IN_MEMORY_BYTES", in_memory_bytes)
    folders = [Folder(PyArrowFileIO(), str(tmp_path / name)) for name in "ab"]
    for number, folder in enumerate(folders):
        path = Path(folder.base) / "sub"
        path.mkdir(parents=True)
        for name in ("x", "\u00e4 #?"):
            (path / name).write_text("x" * (number + 1))
    files = [list(folder.files()) for folder in folders]
    budget = MemoryBudget()
    listed = Candidates(folders, budget)
    for some in files:
        listed.add(some)
    assert len(listed) == 4
    assert list(listed.chunks()) == list(listed.chunks()) == files
    listed.close()
    assert budget.held_bytes == 0
