"""The rows of an update's tasks: their positions are held as bitmaps, and charged to the budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThanOrEqual
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.spark.tasks.file_shares import file_shares
from icestream.spark.tasks.matched_rows import MatchedRows
from icestream.write.target import WriteTarget

_ROWS = 300_000


@pytest.mark.parametrize("least", [0, 7, _ROWS - 1, _ROWS], ids=["all", "most", "one", "none"])
def test_positions_of_matching_rows_take_less_than_a_byte_each(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    sizes: list[tuple[int, int]] = []
    located = LiveFiles.located

    def spy(
        live: LiveFiles, tasks: Any, columns: Any, positions: Sequence[Any] | None = None
    ) -> Iterator[Any]:
        if positions is not None:
            sizes.append((positions[0].nbytes, live.budget.held_bytes))
        return located(live, tasks, columns, positions)

    table = catalog.create_table("db.t", Schema(NestedField(1, "n", LongType())))
    ice.append(table, pa.table({"n": range(_ROWS)}))
    target = WriteTarget.of(table.refresh())
    live = LiveFiles(target, "main", MemoryBudget("16MB"))
    row_filter = GreaterThanOrEqual("n", least)
    files = KeptTasks(live.budget)
    files.extend(live.tasks(live.ask()))
    (share,) = file_shares(files, [1], tasks=1)
    monkeypatch.setattr(LiveFiles, "located", spy)
    rows = MatchedRows(target, "main", row_filter, ("n",), 16_000_000)
    values = [n for batch in rows(0, share) for n in batch["n"].to_pylist() if n is not None]
    assert values == list(range(least, _ROWS))
    for position_bytes, held_bytes in sizes:
        assert position_bytes <= held_bytes
        assert position_bytes < _ROWS
    assert len(sizes) == (least < _ROWS)
