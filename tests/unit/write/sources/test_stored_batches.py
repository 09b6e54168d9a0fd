"""Files of a load are read inside half of its limit, and refused if they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from tests.support.stored_files import ROWS, stored, write_arrow, write_arrow_stream

_WRITERS: dict[str, tuple[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": ("a.parquet", pq.write_table),
    "row groups": ("a.parquet", partial(pq.write_table, row_group_size=999)),
    "orc": ("a.orc", orc.write_table),
    "arrow": ("a.arrow", write_arrow),
    "arrow stream": ("a.arrow", write_arrow_stream),
    "arrow lz4": ("a.arrow", partial(write_arrow, codec="lz4")),
}


@pytest.mark.parametrize("kind", _WRITERS)
def test_all_rows_come_and_every_byte_is_given_back(tmp_path: Path, kind: str) -> None:
    name, write = _WRITERS[kind]
    write(ROWS, tmp_path / name)
    budget = MemoryBudget("16MB")
    file = stored(tmp_path / name, budget)
    read = pa.Table.from_batches(file.batches(), file.schema())
    assert read.to_pydict() == ROWS.to_pydict()
    assert 0 < budget.peak_bytes <= budget.limit_bytes
    assert budget.held_bytes == 0


def test_many_ordinary_texts_come_in_large_batches_inside_a_small_limit(tmp_path: Path) -> None:
    """The dictionary of the texts is a fifth of what reading may take, and full."""
    texts = [f"{n} {'x' * 500}" for n in range(20_000)]
    rows = pa.table({"id": range(20_000), "text": texts})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=5_000)
    budget = MemoryBudget("16MB")
    read = list(stored(tmp_path / "a.parquet", budget).batches())
    assert pa.Table.from_batches(read).equals(rows)
    assert len(read) < 50
    assert budget.peak_bytes <= budget.limit_bytes


def test_texts_that_may_be_long_come_one_by_one_and_are_charged_as_such(tmp_path: Path) -> None:
    """In this limit there is no room to look whether the dictionary has a long value."""
    texts = [f"{n} {'x' * 500}" for n in range(3_000)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    budget = MemoryBudget("12MB")
    read = list(stored(tmp_path / "a.parquet", budget).batches())
    assert pa.Table.from_batches(read)["text"].to_pylist() == texts
    assert {batch.num_rows for batch in read} == {1}
    assert budget.peak_bytes <= budget.limit_bytes


@pytest.mark.parametrize("kind", _WRITERS)
def test_a_reader_that_stops_early_gives_every_byte_back(tmp_path: Path, kind: str) -> None:
    name, write = _WRITERS[kind]
    write(ROWS, tmp_path / name)
    budget = MemoryBudget("16MB")
    batches = stored(tmp_path / name, budget).batches()
    next(batches)
    assert budget.held_bytes > 0
    batches.close()
    assert budget.held_bytes == 0


def test_dictionaries_come_as_their_values(tmp_path: Path) -> None:
    coded = pa.array(["a", None, "b", "a"]).dictionary_encode()
    rows = pa.table(
        {
            "flat": coded,
            "list": pa.ListArray.from_arrays([0, 1, 3, 3, 4], coded),
            "struct": pa.StructArray.from_arrays([coded], ["x"]),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    file = stored(tmp_path / "a.parquet", MemoryBudget("16MB"))
    schema = file.schema()
    assert schema.field("flat").type == pa.string()
    assert schema.field("struct").type.field(0).type == pa.string()
    read = pa.Table.from_batches(file.batches(), schema)
    assert read.to_pydict() == rows.to_pydict()


def test_a_file_without_rows_gives_none(tmp_path: Path) -> None:
    for name, write in _WRITERS.values():
        write(ROWS.slice(0, 0), tmp_path / name)
        file = stored(tmp_path / name, MemoryBudget("16MB"))
        assert file.schema().names == ROWS.schema.names
        assert sum(batch.num_rows for batch in file.batches()) == 0


def test_a_long_value_that_repeats_comes_in_small_batches(tmp_path: Path) -> None:
    rows = pa.table({"text": ["x" * 100_000] * 500})
    pq.write_table(rows, tmp_path / "a.parquet")
    batches = list(stored(tmp_path / "a.parquet", MemoryBudget("8MB")).batches())
    assert sum(batch.num_rows for batch in batches) == 500
    assert max(batch.nbytes for batch in batches) < 1_000_000


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (pa.table({"id": np.arange(2_000)}), {"row_group_size": 1}),
        (pa.table({f"c{n}": np.random.default_rng(n).random(5_000) for n in range(200)}), {}),
    ],
)
def test_the_limit_that_a_refusal_asks_for_is_enough(
    tmp_path: Path, rows: pa.Table, options: dict[str, int]
) -> None:
    pq.write_table(rows, tmp_path / "a.parquet", **options)
    with pytest.raises(MemoryBudgetError) as refusal:
        list(stored(tmp_path / "a.parquet", MemoryBudget("2MB")).batches())
    assert refusal.value.limit_bytes == 2_000_000
    assert refusal.value.needed_bytes > 2_000_000
    enough = stored(tmp_path / "a.parquet", MemoryBudget(refusal.value.needed_bytes))
    assert sum(batch.num_rows for batch in enough.batches()) == rows.num_rows


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_an_arrow_batch_is_refused_by_what_it_takes_when_decompressed(
    tmp_path: Path, codec: str | None
) -> None:
    rows = pa.table({"zeros": np.zeros(1_000_000)})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema, options=options) as file:
        file.write_table(rows)
    before = pa.total_allocated_bytes()
    with pytest.raises(MemoryBudgetError, match="smaller batches"):
        next(stored(tmp_path / "a.arrow", MemoryBudget("4MB")).batches())
    assert pa.total_allocated_bytes() - before < 1_000_000
    enough = stored(tmp_path / "a.arrow", MemoryBudget("64MB"))
    assert sum(batch.num_rows for batch in enough.batches()) == rows.num_rows
