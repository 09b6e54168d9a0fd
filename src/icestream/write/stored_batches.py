"""Parquet, ORC and Arrow IPC files that are open, as Arrow batches in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from icestream.footer_seal import read_tail

Stored = tuple[pa.Schema, Iterator[pa.RecordBatch], Callable[[], None]]
"""The columns, the batches, and what closes the file."""

_BATCH_ROWS = 16_384
_BUFFER_BYTES = 1 << 16


def stored_batches(format: str, handle: pa.NativeFile) -> Stored:
    """What a file has.

    Args:
        format: `"parquet"`, `"orc"` or `"arrow"`.
        handle: The file. It is closed if it can't be read.

    Memory: a few pages of each column of a Parquet file, some rows of an ORC file; of an Arrow
        file a batch as it was written.
    """
    try:
        return _READERS[format](handle)
    except BaseException:
        handle.close()
        raise


def _parquet(handle: pa.NativeFile) -> Stored:
    import pyarrow.parquet as pq

    read_tail(handle)  # It checks the footer's seal, if there is one.
    file = pq.ParquetFile(
        handle, buffer_size=_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
    )
    batches = file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False)

    def close() -> None:
        file.close(force=True)
        handle.close()

    return file.schema_arrow, batches, close


def _arrow(handle: pa.NativeFile) -> Stored:
    try:
        file = pa.ipc.open_file(handle)
    except pa.ArrowInvalid:
        handle.seek(0)
        stream = pa.ipc.open_stream(handle)
        return stream.schema, iter(stream), handle.close
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return file.schema, batches, handle.close


def _orc(handle: pa.NativeFile) -> Stored:
    import pyarrow.dataset as ds

    # Not `ORCFile.read_stripe`: a stripe may be as large as the file.
    fragment = ds.OrcFileFormat().make_fragment(handle)
    scanner = ds.Scanner.from_fragment(
        fragment,
        batch_size=_BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )
    # Not `to_batches`: on a busy machine that decodes further ahead.
    return fragment.physical_schema, iter(scanner.to_reader()), handle.close


_READERS: dict[str, Callable[[pa.NativeFile], Stored]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "orc": _orc,
}
