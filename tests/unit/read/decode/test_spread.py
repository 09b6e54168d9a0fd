"""Rows of dictionaries are expanded in parts that fit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icestream.read.decode.spread import cut_out, dictionary_columns, rows_that_fit

_VALUES = pa.array(["", "x" * 100, "y" * 1_000], pa.string())


def _fitting(batch: pa.RecordBatch, most_bytes: int) -> int:
    return rows_that_fit(batch, dictionary_columns(batch.schema), most_bytes)


def _dictionary(codes: list[int | None]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), _VALUES)


def _batch(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(len(column))), "c": column})


def test_rows_are_counted_by_the_length_of_their_values() -> None:
    batch = _batch(_dictionary([0, 0, 1, 2, 2, 2]))
    assert _fitting(batch, 10**6) == 6
    assert _fitting(batch, 8 + 8 + 108) == 3
    assert _fitting(batch, 8 + 8 + 108 + 1_007) == 3
    assert _fitting(batch, 8 + 8 + 108 + 1_008) == 4


def test_a_row_that_does_not_fit_comes_alone() -> None:
    assert _fitting(_batch(_dictionary([2, 2])), 10) == 1


def test_plain_columns_are_what_they_are() -> None:
    assert _fitting(_batch(pa.array(["z" * 1_000] * 9)), 10) == 9


def test_slices_and_nulls_count_their_own_rows_only() -> None:
    batch = _batch(_dictionary([2, 2, 2, None, 0, 2, 2])).slice(3)
    assert _fitting(batch, 2_000) == 3


def _nested(kind: str, codes: list[int | None]) -> pa.Array:
    inner = _dictionary(codes)
    if kind == "struct":
        return pa.StructArray.from_arrays([inner], names=["s"])
    if kind == "list":
        return pa.ListArray.from_arrays(list(range(len(codes) + 1)), inner)
    if kind == "large_list":
        return pa.LargeListArray.from_arrays(list(range(len(codes) + 1)), inner)
    if kind == "fixed_list":
        return pa.FixedSizeListArray.from_arrays(inner, 1)
    keys = pa.array(range(len(codes)))
    return pa.MapArray.from_arrays(list(range(len(codes) + 1)), keys, inner)


@pytest.mark.parametrize("kind", ["struct", "list", "large_list", "fixed_list", "map"])
def test_nested_dictionaries_count_too(kind: str) -> None:
    batch = _batch(_nested(kind, [2, 2, 2, 2, 0, 2, 2]))
    assert _fitting(batch, 3_100) == 3
    assert _fitting(batch.slice(3), 3_100) == 4


def test_an_empty_dictionary_is_all_nulls() -> None:
    column = pa.DictionaryArray.from_arrays(
        pa.array([None] * 5, pa.int32()), pa.array([], pa.string())
    )
    assert _fitting(_batch(column), 16) == 2


def test_rows_that_are_cut_out_do_not_keep_the_others() -> None:
    batch = _batch(_dictionary([2] * 10_000))
    part = cut_out(batch, 3)
    assert part.equals(batch.slice(0, 3))
    assert part.column("n").get_total_buffer_size() < 100
