"""Reading ahead: the right bytes, in few requests, never more of them than are charged."""

from __future__ import annotations

import io
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.read.decode.parquet import ParquetReader
from icestream.read.decode.prefetch import Fetcher, PrefetchedFile, PrefetchingReader, plan_fetches

_COLUMNS = 4
_ROWS = 40_000


@pytest.fixture(scope="module", params=[1, 8], ids=["one row group", "eight row groups"])
def contents(request: pytest.FixtureRequest) -> bytes:
    random = np.random.default_rng(3)
    rows = pa.table({f"c{i}": random.integers(0, 2**62, _ROWS) for i in range(_COLUMNS)})
    sink = io.BytesIO()
    size = _ROWS // request.param
    pq.write_table(rows, sink, row_group_size=size, use_dictionary=False, compression="none")
    return sink.getvalue()


class _Store:
    """Stands in for an object store's file: counts requests."""

    def __init__(self, contents: bytes) -> None:
        self._contents = contents
        self.requests: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def size(self) -> int:
        return len(self._contents)

    def get_stream(self, offset: int, length: int) -> pa.NativeFile:
        with self._lock:
            self.requests.append((offset, length))
        return pa.BufferReader(self._contents[offset : offset + length])


def _held_bytes(file: PrefetchedFile) -> int:
    return sum(b.end - b.start for b in file._blocks if b.data is not None)


class _MostHeld(PrefetchedFile):
    """Records the highest number of bytes held, also while a step runs."""

    most_bytes = 0

    def read(self, length: int = -1) -> bytes | pa.Buffer:
        data = super().read(length)
        self.most_bytes = max(self.most_bytes, _held_bytes(self))
        return data


@pytest.mark.parametrize("room_bytes", [64 << 20, 1 << 20, 200_000], ids=str)
@pytest.mark.parametrize("step_rows", [777, 20_000, 1_000_000])
def test_every_byte_is_fetched_once_and_no_more_is_held_than_is_charged(
    contents: bytes, room_bytes: int, step_rows: int
) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(contents)).metadata
    groups = tuple(range(metadata.num_row_groups))
    leaves = list(range(_COLUMNS))
    plan = plan_fetches(metadata, groups, leaves, room_bytes)
    store, fetcher = _Store(contents), Fetcher()
    file = _MostHeld(store, plan, fetcher)
    reader = PrefetchingReader(
        ParquetReader(pa.PythonFile(file, mode="r"), metadata, groups, leaves, 1 << 14, []),
        file,
        [metadata.row_group(group).num_rows for group in groups],
    )
    batches = []
    while (batch := reader.step(step_rows, use_threads=False)) is not None:
        batches.append(batch)
    assert pa.Table.from_batches(batches).equals(pq.read_table(pa.BufferReader(contents)))
    assert 0 < file.most_bytes <= plan.window_bytes
    assert len(set(store.requests)) == len(store.requests) == len(plan.blocks)
    reader.close()
    assert file.closed
    fetcher.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("icestream-fetch")]


def test_a_row_group_that_fits_the_window_takes_one_request(contents: bytes) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(contents)).metadata
    groups = tuple(range(metadata.num_row_groups))
    plan = plan_fetches(metadata, groups, list(range(_COLUMNS)), 64 << 20)
    assert len(plan.blocks) == len(groups)


def test_the_first_blocks_are_fetched_before_the_decoder_asks(contents: bytes) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(contents)).metadata
    plan = plan_fetches(metadata, (0,), list(range(_COLUMNS)), 200_000)
    store, fetcher = _Store(contents), Fetcher()
    file = PrefetchedFile(store, plan, fetcher)
    assert _held_bytes(file) > 0
    fetcher.close()
    assert store.requests
    file.close()


def test_bytes_outside_the_plan_are_read_directly(contents: bytes) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(contents)).metadata
    plan = plan_fetches(metadata, (0,), [1], 64 << 20)
    fetcher = Fetcher()
    file = PrefetchedFile(_Store(contents), plan, fetcher)
    file.seek(0)
    assert file.read() == contents
    assert file.tell() == len(contents)
    file.close()
    fetcher.close()


def test_an_object_that_ends_early_is_an_error_and_not_fewer_bytes(contents: bytes) -> None:
    metadata = pq.ParquetFile(pa.BufferReader(contents)).metadata
    plan = plan_fetches(metadata, (0,), [0], 64 << 20)
    store, fetcher = _Store(contents), Fetcher()
    store.get_stream = lambda at, length: pa.BufferReader(contents[at : at + length // 2])  # type: ignore[method-assign]
    file = PrefetchedFile(store, plan, fetcher)
    file.seek(plan.blocks[0][0])
    with pytest.raises(OSError, match="ended early"):
        file.read(plan.blocks[0][1] - plan.blocks[0][0])
    file.close()
    fetcher.close()
