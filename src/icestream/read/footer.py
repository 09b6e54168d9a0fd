"""A Parquet file's footer, read once and checked against its seal."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.footer_seal import END_BYTES, read_tail


def read_footer(handle: pa.NativeFile) -> pq.ParquetFile:
    """The footer, as a file whose `metadata` and `schema_arrow` can be asked for.

    Raises:
        DamagedFooterError: If its seal shows damage.
    """
    tail = read_tail(handle)
    if tail is None:
        return pq.ParquetFile(handle, pre_buffer=False)  # It says what is wrong.
    length = int.from_bytes(tail[-8:-4], "little") + END_BYTES
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(tail).slice(len(tail) - length)))
