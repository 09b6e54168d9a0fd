"""A run on disk: written once, read once chunk by chunk, and gone with its process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from icestream.errors import WriteError
from icestream.memory.budget import MemoryBudget
from icestream.write.spill.run_file import RunFile

_SCHEMA = pa.schema([("number", pa.int64())])


def _run(directory: Path, *chunks: list[int]) -> RunFile:
    run = RunFile(_SCHEMA, str(directory))
    for ids in chunks:
        rows = pa.record_batch([pa.array([10 * each for each in ids], pa.int64())], schema=_SCHEMA)
        run.append(rows, np.array(ids, np.int32))
    run.finish()
    return run


def test_a_cursor_goes_over_all_chunks_and_holds_one_of_them(tmp_path: Path) -> None:
    budget = MemoryBudget("1MB")
    run = _run(tmp_path, [0, 0, 1], [1, 4])
    assert run.bytes > 0
    assert list(tmp_path.iterdir()) == []
    cursor = run.cursor(budget)
    seen = []
    while not cursor.exhausted:
        assert budget.held_bytes >= cursor.rows.nbytes
        end = cursor.end_of(cursor.id)
        seen.append((cursor.id, cursor.rows.column(0).to_pylist()[cursor.position : end]))
        cursor.advance(end)
    assert seen == [(0, [0, 0]), (1, [10]), (1, [10]), (4, [40])]
    assert budget.held_bytes == 0


def test_a_run_without_rows_is_exhausted_at_once(tmp_path: Path) -> None:
    assert _run(tmp_path).cursor(MemoryBudget("1MB")).exhausted


def test_a_closed_run_can_be_closed_again(tmp_path: Path) -> None:
    run = _run(tmp_path, [0])
    run.close()
    run.close()


def test_the_directory_and_the_remedy_are_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"spilled to .*gone: .*TMPDIR") as caught:
        RunFile(_SCHEMA, str(tmp_path / "gone"))
    assert caught.value.path == str(tmp_path / "gone")
