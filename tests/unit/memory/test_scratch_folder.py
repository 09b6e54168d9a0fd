"""Temporary folders: a process that is killed leaves none for the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from icestream.memory.scratch_folder import ScratchFolder
from tests.support.process import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders stay there")

_HOLD = """
import sys
from icestream.memory.scratch_folder import ScratchFolder
folder = ScratchFolder("tests")
(folder.path / "below").mkdir()
(folder.path / "below" / "rows").write_bytes(b"rows")
print(folder.path, flush=True)
sys.stdin.readline()
"""
# A transform that DuckDB spills for, killed while it reads its source.
_TRANSFORM = """
import os, sys
import numpy as np, pyarrow as pa
from icestream.pipeline.engines.local_transform import transformed
from icestream.write.sources.arrow_source import open_source

def batches():
    for number in range(1000):
        if any(Path(root, name).stat().st_size > 0 and name != ".owner"
               for root, _, names in os.walk(os.environ["TMPDIR"]) for name in names):
            print("spilled", flush=True)
            sys.stdin.readline()
        yield pa.record_batch({"x": np.random.default_rng(number).random(100_000)})

from pathlib import Path
schema = pa.schema([("x", pa.float64())])
source = open_source(pa.RecordBatchReader.from_batches(schema, batches()))
for _ in transformed(source, "SELECT x FROM source ORDER BY x", memory_bytes=24 << 20):
    pass
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextmanager
def _running(code: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_folder_goes_when_it_is_closed(temporary: Path) -> None:
    with ScratchFolder("tests") as folder:
        (folder / "rows").write_bytes(b"rows")
        assert folder.parent == temporary
    assert list(temporary.iterdir()) == []


def test_a_killed_process_leaves_a_folder_that_the_next_one_removes(temporary: Path) -> None:
    with _running(_HOLD) as (process, path):
        with ScratchFolder("tests"):
            assert Path(path, "below", "rows").exists()  # its process runs
        process.kill()
        process.wait()
        assert Path(path).exists()
        with ScratchFolder("tests") as own:
            assert list(temporary.iterdir()) == [own]


def test_two_folders_of_one_process_leave_each_other_alone() -> None:
    with ScratchFolder("tests") as first, ScratchFolder("tests") as second:
        assert first.exists()
        assert second.exists()


def test_folders_that_are_not_ours_are_left_alone(temporary: Path) -> None:
    (temporary / "icestream-notes").mkdir()
    (temporary / "icestream-notes" / "mine.txt").write_text("mine")
    (temporary / "other").mkdir()
    (temporary / "other" / ".owner").write_text("")
    (temporary / "icestream-link").symlink_to(temporary / "other")
    with ScratchFolder("tests"):
        pass
    assert (temporary / "icestream-notes" / "mine.txt").exists()
    assert (temporary / "other" / ".owner").exists()


def test_what_a_killed_transform_has_spilled_is_removed_by_the_next_run(temporary: Path) -> None:
    pytest.importorskip("duckdb")
    with _running(_TRANSFORM) as (process, said):
        assert said == "spilled"
        process.kill()
        process.wait()
    assert any(temporary.rglob("*.tmp"))
    ScratchFolder("duckdb").close()
    assert list(temporary.iterdir()) == []
