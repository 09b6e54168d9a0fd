"""Dictionaries: kept where values repeat, left out where they hardly ever do."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

from icestream.write.dictionary_columns import dictionary_columns

_ROWS = 100_000
_RANDOM = np.random.default_rng(1)


def _drawn_from(count: int) -> pa.Array:
    values = _RANDOM.integers(0, 2**62, count)
    return pa.array(values[_RANDOM.integers(0, count, _ROWS)])


_UUIDS = [uuid.UUID(int=int(n)).bytes for n in _RANDOM.integers(0, 2**62, _ROWS)]
_DIFFERENT = {
    "a sequence": pa.array(np.arange(_ROWS)),
    "random numbers": pa.array(_RANDOM.random(_ROWS)),
    "moments": pa.array(np.arange(_ROWS) * 7).cast(pa.timestamp("us")),
    "decimals": pa.array(np.arange(_ROWS)).cast(pa.decimal128(38, 0)),
    "texts": pa.array(np.arange(_ROWS)).cast(pa.string()),
    "uuids": pa.array(_UUIDS, pa.binary(16)).cast(pa.uuid()),
    "with nulls": pa.array(np.arange(_ROWS), mask=_RANDOM.random(_ROWS) < 0.5),
}
_REPEATED = {
    "few values": _drawn_from(50),
    "a tenth different": _drawn_from(_ROWS // 10),
    "runs": pa.array(np.repeat(np.arange(_ROWS // 20), 20)),
    "different at first": pa.array(np.minimum(np.arange(_ROWS), _ROWS // 3)),
    "nulls": pa.nulls(_ROWS, pa.int64()),
    "flags": pa.array(_RANDOM.random(_ROWS) < 0.5),
    "one text": pa.array(["text"] * _ROWS),
}


@pytest.mark.parametrize("values", _DIFFERENT.values(), ids=_DIFFERENT)
def test_a_column_of_different_values_goes_without(values: pa.Array) -> None:
    assert dictionary_columns(pa.table({"c": values}), ["c"]) == []


@pytest.mark.parametrize("values", _REPEATED.values(), ids=_REPEATED)
def test_a_column_of_values_that_repeat_has_one(values: pa.Array) -> None:
    assert dictionary_columns(pa.table({"c": values}), ["c"]) == ["c"]


def test_columns_are_judged_one_by_one() -> None:
    rows = pa.table({"a": _DIFFERENT["texts"], "b": _REPEATED["runs"], "c": _DIFFERENT["uuids"]})
    assert dictionary_columns(rows, ["a", "b", "c"]) == ["b"]


def test_few_rows_are_not_judged() -> None:
    rows = pa.table({"c": np.arange(8_000)})
    assert dictionary_columns(rows, ["c"]) == ["c"]


def test_nested_columns_are_not_judged() -> None:
    numbers = _DIFFERENT["a sequence"]
    rows = pa.table({"s": pa.StructArray.from_arrays([numbers], ["x"]), "x": numbers})
    assert dictionary_columns(rows, ["s.x", "x"]) == ["s.x"]


def test_rows_in_many_chunks_are_judged_alike() -> None:
    rows = pa.table({"a": _DIFFERENT["texts"], "b": _REPEATED["runs"]})
    chunks = pa.Table.from_batches(rows.to_batches(max_chunksize=313))
    assert dictionary_columns(chunks, ["a", "b"]) == ["b"]
