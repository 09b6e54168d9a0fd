"""The seal of a Parquet footer: every reader reads the file, and damage is found."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.footer_seal import DamagedFooterError, SealedOutput, check_seal, read_tail


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


@pytest.mark.parametrize("bloom", [False, True])
def test_a_sealed_file_is_a_parquet_file_like_others(bloom: bool) -> None:
    options = {"bloom_filter_options": {"name": {"ndv": 1000, "fpp": 0.01}}} if bloom else {}
    content = _written(_ROWS, **options)
    assert _sealed(content)
    assert pq.read_table(pa.BufferReader(content)).equals(_ROWS)
    tail = read_tail(pa.BufferReader(content))
    assert tail is not None
    assert content.endswith(tail)


def test_every_flipped_bit_of_the_footer_is_found() -> None:
    content = _written(_ROWS.slice(0, 10))
    length = int.from_bytes(content[-8:-4], "little")
    for place in range(len(content) - 8 - length, len(content) - 8):
        damaged = bytearray(content)
        damaged[place] ^= 16
        with pytest.raises(DamagedFooterError):
            check_seal(bytes(damaged))


def test_a_footer_longer_than_may_be_held_gets_no_seal() -> None:
    content = _written(_ROWS, most_bytes=100)
    assert not _sealed(content)
    assert pq.read_table(pa.BufferReader(content)).equals(_ROWS)


def test_a_file_without_a_seal_is_read_as_it_is() -> None:
    file = io.BytesIO()
    pq.write_table(_ROWS, file)
    assert read_tail(pa.BufferReader(file.getvalue())) is not None


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100, b"\xff\xff\xff\xffPAR1" * 20])
def test_what_is_not_a_parquet_file_is_left_to_the_reader(content: bytes) -> None:
    assert read_tail(pa.BufferReader(content)) is None


def test_a_footer_longer_than_the_first_read_is_checked_too() -> None:
    wide = pa.table({f"a column with a long name {n}": [n] for n in range(800)})
    content = bytearray(_written(wide))
    assert int.from_bytes(content[-8:-4], "little") > 64 << 10
    content[-90_000] ^= 1
    with pytest.raises(DamagedFooterError):
        read_tail(pa.BufferReader(bytes(content)))
