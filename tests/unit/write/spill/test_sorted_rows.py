"""Rows sorted in memory: by partition, then by keys, copied only if they must be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.write.spill.run_file import with_ids
from icestream.write.spill.sort_keys import SortKeys
from icestream.write.spill.sorted_rows import SortedRows

_SCHEMA = pa.schema(
    [pa.field("number", pa.int64(), metadata={b"PARQUET:field_id": b"1"}), ("text", pa.string())]
)


def _rows(ids: list[int], numbers: list[int] | None = None) -> pa.RecordBatch:
    """Rows with their ids: the text tells which one a row is."""
    numbers = list(range(len(ids))) if numbers is None else numbers
    texts = [f"{each}-{number}" for each, number in zip(ids, numbers, strict=True)]
    rows = pa.record_batch([pa.array(numbers, pa.int64()), pa.array(texts)], schema=_SCHEMA)
    return with_ids(rows, np.array(ids, np.int32))


def test_rows_in_order_are_not_copied() -> None:
    batch = _rows([0, 0, 1, 2, 2])
    rows = SortedRows([batch.slice(0, 2), batch.slice(2)])
    first, second = rows.rows(1, 4)
    assert first.column(0).buffers()[1].address == batch.column(0).buffers()[1].address
    assert second.column("number").to_pylist() == [2, 3]
    assert [(span.partition_id, span.start, span.stop) for span in rows.spans()] == [
        (0, 0, 2),
        (1, 2, 3),
        (2, 3, 5),
    ]


def test_some_spans_can_be_chosen() -> None:
    rows = SortedRows([_rows([2, 0, 1]), _rows([1, 0])])
    fewer = rows.only([span for span in rows.spans() if span.partition_id != 1])
    assert fewer.ids.tolist() == [0, 0, 2]
    (batch,) = fewer.rows(0, 3)
    assert batch.column("text").to_pylist() == ["0-1", "0-1", "2-0"]
    assert fewer.rows(1, 2)[0].column("text").to_pylist() == ["0-1"]


def test_keys_sort_the_rows_of_a_partition_and_equal_rows_keep_their_order() -> None:
    schema = Schema(NestedField(1, "number", LongType(), required=False))
    keys = SortKeys(SortOrder(SortField(1, IdentityTransform())), schema, _SCHEMA)
    rows = SortedRows([_rows([1, 0, 1], [5, 9, 2]), _rows([0, 1], [3, 2])], keys)
    (batch,) = rows.rows(0, len(rows))
    assert rows.ids.tolist() == [0, 0, 1, 1, 1]
    assert batch.column("number").to_pylist() == [3, 9, 2, 2, 5]


def test_chunks_have_all_rows_with_their_ids_in_small_pieces() -> None:
    ids = [n % 3 for n in range(1_000)]
    in_order = _rows(sorted(ids))
    for batches in ([_rows(ids)], [in_order.slice(0, 400), in_order.slice(400)]):
        rows = SortedRows(batches)
        chunks = list(rows.chunks(rows.bytes // 10))
        assert len(chunks) >= 10
        assert max(batch.num_rows for batch, _ in chunks) <= 100
        texts = [text for batch, _ in chunks for text in batch.column("text").to_pylist()]
        numbered = [int(each) for _, chunk_ids in chunks for each in chunk_ids]
        assert numbered == sorted(ids)
        assert [int(text.split("-")[0]) for text in texts] == numbered
        assert len(set(texts)) == 1_000
