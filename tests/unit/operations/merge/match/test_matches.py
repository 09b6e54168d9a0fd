"""Keys of the table's files that the stream may also have, and rows in chunks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icestream.memory.budget import MemoryBudget
from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.key_hash import KeyHash
from icestream.operations.merge.keys.key_index import Sieve
from icestream.operations.merge.match import matches
from icestream.operations.merge.match.matches import Update, chunks, keys_of_files
from icestream.write.target import WriteTarget
from tests.support.merges import filled


@pytest.mark.parametrize("on", ["id", "text"])
def test_null_keys_and_keys_that_the_stream_does_not_have_are_left_out(
    catalog: SqlCatalog, on: str
) -> None:
    table = filled(catalog, [(1, 1, "1"), (None, 2, None), (3, 1, "3")], [(4, 1, "4"), (3, 1, "3")])
    live = LiveFiles(WriteTarget.of(table.refresh()), "main", MemoryBudget("16MB"))
    tasks = sorted(live.tasks(live.ask()), key=lambda task: -task.file.record_count)
    key, key_hash = KeyColumns.of(table.schema(), on, table="db.t"), KeyHash()
    every = list(keys_of_files(live, tasks, key, key_hash, None))
    assert [(part.number, part.positions.tolist()) for part in every] == [(0, [0, 2]), (1, [0, 1])]
    assert all((part.values is None) == (on == "id") for part in every), "only text is hashed"
    sieve = Sieve(1 << 16)
    sieve.add(key_hash([pa.array([3]) if on == "id" else pa.array(["3"])]))
    some = list(keys_of_files(live, tasks, key, key_hash, sieve))
    assert [(part.number, part.positions.tolist()) for part in some] == [(0, [2]), (1, [1])]


def test_chunks_are_in_order_and_no_larger_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.record_batch({"n": pa.array(range(10), pa.int64())})
    chosen = np.array([9, 3, 3, 0, 7])
    monkeypatch.setattr(matches, "_CHUNK_ROWS", 2)
    found = [(part, taken["n"].to_pylist()) for part, taken in chunks(rows, chosen)]
    assert found == [(slice(0, 2), [9, 3]), (slice(2, 4), [3, 0]), (slice(4, 5), [7])]
    monkeypatch.setattr(matches, "_CHUNK_BYTES", 8)
    assert [taken.num_rows for _, taken in chunks(rows, chosen)] == [1] * 5
    assert list(chunks(rows, chosen[:0])) == []


def test_a_mask_selects_positions_together_with_their_rows() -> None:
    update = Update(np.array([4, 6, 9]), pa.record_batch({"n": [1, 2, 3]}))
    some = update.where(np.array([True, False, True]))
    assert (some.positions.tolist(), some.rows["n"].to_pylist()) == ([4, 9], [1, 3])
