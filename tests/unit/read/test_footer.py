"""A footer's bytes are charged before it is parsed."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.errors import MemoryBudgetError
from icestream.read.footer import read_footer, refuse_footer_beyond


def _file(groups: int) -> bytes:
    sink = io.BytesIO()
    rows = pa.table({f"c{i}": list(range(groups)) for i in range(5)})
    pq.write_table(rows, sink, row_group_size=1)
    return sink.getvalue()


@pytest.mark.parametrize("groups", [1, 2_000], ids=["in the tail", "beyond the tail"])
def test_a_footer_is_charged_and_then_parsed(groups: int) -> None:
    data = _file(groups)
    charged: list[int] = []
    metadata = read_footer(pa.BufferReader(data), charged.append).metadata
    assert metadata.equals(pq.read_metadata(io.BytesIO(data)))
    assert charged == [10 * int.from_bytes(data[-8:-4], "little")]


def test_a_footer_that_is_refused_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(source: object) -> None:
        raise AssertionError("parsed")

    monkeypatch.setattr(pq, "ParquetFile", never)
    with pytest.raises(MemoryBudgetError, match=r"footer of f takes .* fewer row groups"):
        read_footer(
            pa.BufferReader(_file(2_000)), lambda size: refuse_footer_beyond(1_000, size, "f")
        )


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 100, b"PAR1" + b"\xff\xff\xff\x7fPAR1"])
def test_what_is_no_parquet_file_is_said_by_the_reader(data: bytes) -> None:
    with pytest.raises((pa.ArrowInvalid, OSError)):
        read_footer(pa.BufferReader(data), lambda size: None)
