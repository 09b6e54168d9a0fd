"""A footer is charged before it is parsed, and damage to a sealed footer is found."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.errors import MemoryBudgetError
from icestream.read.decode.footer import (
    DamagedFooterError,
    SealedOutput,
    read_footer,
    refuse_footer_beyond,
)


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


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"x" * 100, b"PAR1\xff\xff\xff\x7fPAR1", b"\xff\xff\xff\xffPAR1" * 20]
)
def test_what_is_no_parquet_file_is_said_by_the_reader(data: bytes) -> None:
    with pytest.raises((pa.ArrowInvalid, OSError)):
        read_footer(pa.BufferReader(data), lambda size: None)


class _File(io.BytesIO):
    """Keeps what was written when it is closed."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def _written(rows: pa.Table, most_bytes: int = 1 << 20, **options: object) -> bytes:
    file = _File()
    output = SealedOutput(file, 1 << 12)
    writer = pq.ParquetWriter(output.stream, rows.schema, **options)
    writer.write_table(rows, row_group_size=100)
    with output.footer(most_bytes):
        writer.close()
    output.close()
    assert output.bytes_written == len(file.content)
    return file.content


_ROWS = pa.table({"id": range(1000), "name": [f"name {n}" for n in range(1000)]})


def _sealed(content: bytes) -> bool:
    return b"ICESEAL1" in content


def _parsed(content: bytes) -> pq.FileMetaData:
    return read_footer(pa.BufferReader(content)).metadata


@pytest.mark.parametrize("bloom", [False, True])
def test_a_sealed_file_is_a_parquet_file_like_others(bloom: bool) -> None:
    options = {"bloom_filter_options": {"name": {"ndv": 1000, "fpp": 0.01}}} if bloom else {}
    content = _written(_ROWS, **options)
    assert _sealed(content)
    assert pq.read_table(pa.BufferReader(content)).equals(_ROWS)
    assert _parsed(content).equals(pq.read_metadata(io.BytesIO(content)))


def test_every_flipped_bit_of_the_footer_is_found() -> None:
    content = _written(_ROWS.slice(0, 10))
    length = int.from_bytes(content[-8:-4], "little")
    for place in range(len(content) - 8 - length, len(content) - 8):
        damaged = bytearray(content)
        damaged[place] ^= 16
        with pytest.raises(DamagedFooterError):
            _parsed(bytes(damaged))


def test_a_footer_longer_than_may_be_held_gets_no_seal() -> None:
    content = _written(_ROWS, most_bytes=100)
    assert not _sealed(content)
    assert pq.read_table(pa.BufferReader(content)).equals(_ROWS)


def test_a_file_without_a_seal_is_read_as_it_is() -> None:
    file = io.BytesIO()
    pq.write_table(_ROWS, file)
    assert _parsed(file.getvalue()).num_rows == _ROWS.num_rows


def test_a_footer_longer_than_the_first_read_is_checked_too() -> None:
    wide = pa.table({f"a column with a long name {n}": [n] for n in range(800)})
    content = bytearray(_written(wide))
    assert int.from_bytes(content[-8:-4], "little") > 64 << 10
    content[-90_000] ^= 1
    with pytest.raises(DamagedFooterError):
        _parsed(bytes(content))
