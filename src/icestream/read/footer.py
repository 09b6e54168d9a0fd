"""A Parquet file's footer, charged before it is parsed, and checked against its seal.

Parsed, a footer takes about ten times its bytes in the file, outside Arrow's pools: with tens of
thousands of row groups that is hundreds of MB. The last eight bytes of the file give its length.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.errors import MemoryBudgetError
from icestream.footer_seal import END_BYTES, read_tail
from icestream.memory import format_bytes

_PARSED_FACTOR = 10  # measured: 7.8 to 11.7 with 5 to 3,000 columns, docs/design/0011


def read_footer(
    handle: pa.NativeFile, charge: Callable[[int], None] = lambda needed_bytes: None
) -> pq.ParquetFile:
    """The footer, as a file whose `metadata` and `schema_arrow` can be asked for.

    Args:
        handle: The open file.
        charge: Called with the bytes that the parsed footer will take, before it is read and
            parsed; may wait or refuse.

    Raises:
        DamagedFooterError: If its seal shows damage.
    """
    tail = read_tail(handle, lambda length: charge(_PARSED_FACTOR * length))
    if tail is None:
        return pq.ParquetFile(handle, pre_buffer=False)  # It says what is wrong.
    length = int.from_bytes(tail[-8:-4], "little") + END_BYTES
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(tail).slice(len(tail) - length)))


def refuse_footer_beyond(limit_bytes: int, needed_bytes: int, path: str) -> None:
    """Refuse a footer that does not fit the limit, before it is parsed.

    Raises:
        MemoryBudgetError: With the bytes that reading the file needs at least.
    """
    if needed_bytes <= limit_bytes:
        return
    asked = int(needed_bytes * 1.5)
    raise MemoryBudgetError(
        f"the footer of {path} takes {format_bytes(needed_bytes)} when it is parsed, and the limit "
        f"is {format_bytes(limit_bytes)}: raise memory to {format_bytes(asked)} or more, or "
        "rewrite the file with fewer row groups",
        needed_bytes=asked,
        limit_bytes=limit_bytes,
    )
