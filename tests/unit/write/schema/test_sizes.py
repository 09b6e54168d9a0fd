"""The size of rows with every value written out, and batches cut by it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icestream.write.schema.sizes import cut_by, cut_written_out, written_out_bytes

_TEXTS = ["a", "bb" * 500, None, "cccc"]
_LISTS = [["x" * 100, "y"], None, [], ["z" * 900]]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(_TEXTS),
        pa.array(_TEXTS, pa.string_view()),
        pa.array(_TEXTS, pa.large_string()),
        pa.array(_TEXTS).dictionary_encode(),
        pa.array(_LISTS),
        pa.array(_LISTS, pa.list_view(pa.string())),
        pa.array([{"s": text, "n": 1} for text in _TEXTS]),
    ],
    ids=lambda array: str(array.type)[:25],
)
def test_slices_take_their_own_rows_in_whatever_form(array: pa.Array) -> None:
    whole = pa.concat_arrays([array] * 50)
    size = written_out_bytes(whole)
    assert 50_000 < size < 60_000
    assert written_out_bytes(whole.slice(100, 100)) == pytest.approx(size / 2, rel=0.05)
    assert written_out_bytes(whole.slice(0, 0)) < 10


def test_a_value_that_is_held_once_counts_for_every_row() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 0, 0]), pa.array(["x" * 1_000]))
    runs = pa.RunEndEncodedArray.from_arrays([1_000], ["x" * 1_000])
    assert written_out_bytes(coded) == pytest.approx(3_000, rel=0.01)
    assert written_out_bytes(runs.slice(990, 3)) == pytest.approx(3_000, rel=0.01)


def test_repeated_values_are_cut_by_what_they_become() -> None:
    coded = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000), pa.array(["x" * 100]))
    batch = pa.record_batch([coded, pa.array(range(1_000))], names=["text", "id"])
    pieces = list(cut_written_out(batch, 20_000))
    assert 5 <= len(pieces) <= 8
    assert pa.Table.from_batches(pieces).column("id").to_pylist() == list(range(1_000))
    plain = pa.record_batch({"id": range(1_000)})
    assert [piece is plain for piece in cut_written_out(plain, 8_000)] == [True]


def test_slices_are_cut_again_where_the_bytes_are() -> None:
    batch = pa.record_batch({"bytes": [1] * 96 + [100] * 3 + [1]})

    def size_of(piece: pa.RecordBatch) -> int:
        return sum(piece.column(0).to_pylist())

    pieces = list(cut_by(batch, 120, size_of))
    assert all(size_of(piece) <= 120 for piece in pieces)
    assert pa.Table.from_batches(pieces).column(0).to_pylist() == batch.column(0).to_pylist()
    assert [piece.num_rows for piece in cut_by(batch.slice(96, 3), 10, size_of)] == [1, 1, 1]
