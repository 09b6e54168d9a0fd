"""Sizes of pages, from their headers alone."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.read.decode.pages import PageSizes, page_sizes

_ROWS = 50_000


def _sizes(values: Any, *, every: bool = True, **options: Any) -> tuple[PageSizes, Any]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": values}), sink, **options)
    chunk = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0).column(0)
    return page_sizes(pa.BufferReader(sink.getvalue()), chunk, every=every), chunk


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd", "snappy"])
@pytest.mark.parametrize("options", [{}, {"write_page_checksum": True}, {"write_page_index": True}])
def test_plain_pages_are_as_large_as_their_values(version, compression, options):
    sizes, chunk = _sizes(
        list(range(_ROWS)),
        use_dictionary=False,
        data_page_version=version,
        compression=compression,
        data_page_size=64 << 10,
        **options,
    )
    assert 60_000 < sizes.largest_bytes < 80_000
    assert (sizes.dictionary_bytes, sizes.dictionary_values) == (0, 0)
    assert sizes.data_bytes == chunk.total_uncompressed_size


def test_the_longest_text_makes_the_largest_page_wherever_it_is() -> None:
    texts = ["short"] * 40_000 + ["x" * 3_000_000] + ["short"] * 9_999
    sizes, _ = _sizes(texts, use_dictionary=False, write_batch_size=100, compression="zstd")
    assert 3_000_000 < sizes.largest_bytes < 3_200_000
    first, _ = _sizes(texts, every=False, use_dictionary=False, compression="zstd")
    assert first.largest_bytes < 1_000_000


def test_a_dictionary_says_how_long_its_values_can_be() -> None:
    sizes, _ = _sizes(["a" * 100_000, "b" * 100_000, "c"] * 1_000, compression="zstd")
    assert sizes.dictionary_values == 3
    assert sizes.dictionary_bytes == 200_001 + 3 * 4
    assert sizes.longest_value_bytes == 200_001


def test_headers_longer_than_usual_are_read_whole() -> None:
    """Statistics of a page are in its header: here the lowest and highest text."""
    texts = [chr(97 + i % 26) * 3_000 for i in range(2_000)]
    sizes, _ = _sizes(texts, use_dictionary=False, data_page_size=256 << 10)
    assert 256 << 10 <= sizes.largest_bytes < 4_000_000


def test_what_is_no_page_header_is_bounded_by_the_footer() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": list(range(_ROWS))}), sink)
    chunk = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0).column(0)
    whole = chunk.total_uncompressed_size
    damaged = pa.BufferReader(b"\xff" * len(sink.getvalue()))
    assert page_sizes(damaged, chunk) == PageSizes(whole, whole, 1, whole)
    cut = pa.BufferReader(sink.getvalue()[:6])
    assert page_sizes(cut, chunk).largest_bytes == whole
