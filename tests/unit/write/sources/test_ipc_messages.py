"""Sizes in the headers of Arrow files and streams, of any writer, whole or damaged."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from icestream.write.sources.ipc_messages import IpcMessages
from tests.support.stored_files import ROWS, stored, write_arrow, write_arrow_stream


@pytest.mark.parametrize("codec", [None, "lz4"])
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_sizes_are_known_before_dictionaries_and_batches_are_read(
    tmp_path: Path, kind: str, codec: str | None
) -> None:
    path = tmp_path / "a.arrow"
    rows = pa.record_batch({"zeros": np.zeros(10_000), "text": pa.array(["x"] * 10_000)})
    rows = rows.set_column(1, "text", rows.column(1).dictionary_encode())
    create = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with create(path, rows.schema, options=options) as file:
        for _ in range(2):
            file.write_batch(rows)
    with pa.OSFile(str(path)) as handle:
        messages = IpcMessages(handle)
        assert messages.schema == rows.schema
        sizes = []
        for size in messages.sizes():
            sizes.append(size)
            if not size.is_dictionary:
                assert size.bytes >= rows.column(0).nbytes + rows.column(1).indices.nbytes
                assert messages.next_batch().equals(rows)
    assert [size.is_dictionary for size in sizes] == [True, False, False]


@pytest.mark.parametrize("codec", ["uncompressed", "lz4", "zstd"])
def test_an_arrow_file_of_another_writer_is_read(
    tmp_path: Path, codec: Literal["uncompressed", "lz4", "zstd"]
) -> None:
    """Polars leaves other gaps between messages, and writes shorter headers than PyArrow does."""
    frame = pl.from_arrow(ROWS)
    assert isinstance(frame, pl.DataFrame)
    frame.write_ipc(tmp_path / "a.arrow", compression=codec, record_batch_size=9_999)
    file = stored(tmp_path / "a.arrow", MemoryBudget("16MB"))
    read = pa.Table.from_batches(file.batches(), file.schema())
    assert read.to_pydict() == ROWS.to_pydict()


def test_room_between_the_mark_and_the_first_message_is_passed_over(tmp_path: Path) -> None:
    """As the Rust implementation writes files, which starts at a multiple of 64."""
    rows = pa.record_batch({"id": range(1_000)})
    path = tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        starts = []
        for _ in range(3):
            file.write_batch(rows)
            starts.append(sink.tell())
    data = path.read_bytes()
    # The first batch is behind the schema, each other one behind the one before.
    first = starts[0] - (starts[1] - starts[0])
    footer = data[starts[2] :]
    for start in (first, *starts[:2]):
        assert footer.count(struct.pack("<q", start)) == 1
        footer = footer.replace(struct.pack("<q", start), struct.pack("<q", start + 56))
    path.write_bytes(data[:8] + bytes(56) + data[8 : starts[2]] + footer)
    batches = list(stored(path, MemoryBudget("16MB")).batches())
    assert [batch.num_rows for batch in batches] == [1_000] * 3


@pytest.mark.parametrize("cut_bytes", [9, 100, 100_000])
def test_a_stream_that_is_cut_off_is_an_error(tmp_path: Path, cut_bytes: int) -> None:
    path = tmp_path / "a.arrow"
    write_arrow_stream(ROWS, path)
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    with pytest.raises((pa.ArrowInvalid, OSError)):
        list(stored(path, MemoryBudget("16MB")).batches())


def test_damaged_headers_are_errors_and_nothing_else(tmp_path: Path) -> None:
    rows = ROWS.slice(0, 100).append_column("coded", pa.array(["a"] * 100).dictionary_encode())
    random = np.random.default_rng(5)
    for write in (partial(write_arrow, codec="lz4"), write_arrow_stream):
        path = tmp_path / "a.arrow"
        write(rows, path)
        data = path.read_bytes()
        for place in random.integers(0, len(data), 400):
            damaged = bytearray(data)
            damaged[place] ^= int(random.integers(1, 256))
            path.write_bytes(damaged)
            with suppress(pa.ArrowException, OSError, MemoryBudgetError):
                list(stored(path, MemoryBudget("16MB")).batches())
