"""Dictionaries: kept where values repeat, left out where they hardly ever do."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping

from icestream.write.parquet.dictionary_columns import dictionary_columns
from tests.support.tables import all_types_rows, all_types_schema

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


def test_every_type_of_a_file_can_be_judged() -> None:
    rows = all_types_rows(10_000)
    paths = parquet_path_to_id_mapping(all_types_schema())
    kept = dictionary_columns(rows, paths)
    assert "id" not in kept
    assert "person.name" in kept


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
    rows = pa.table({"c": np.arange(1_000)})
    assert dictionary_columns(rows, ["c"]) == ["c"]


def test_nested_columns_are_judged_by_their_values() -> None:
    unique, runs = _DIFFERENT["a sequence"], _REPEATED["runs"]
    half = pa.array(np.arange(0, _ROWS + 1, 2), pa.int32())
    struct = pa.StructArray.from_arrays([unique, runs, _REPEATED["flags"]], ["u", "r", "f"])
    rows = pa.table(
        {
            "s": struct.slice(0, _ROWS // 2),
            "l": pa.ListArray.from_arrays(half, unique),
            "ls": pa.ListArray.from_arrays(half, struct),
            "m": pa.MapArray.from_arrays(half, unique.cast(pa.string()), runs),
        }
    )
    kept = {
        "s.r": True,
        "s.u": False,
        "l.list.element": False,
        "ls.list.element.u": False,
        "ls.list.element.r": True,
        "m.key_value.key": False,
        "m.key_value.value": True,
    }
    assert dictionary_columns(rows, kept) == [path for path, keep in kept.items() if keep]
    chunks = pa.Table.from_batches(rows.to_batches(max_chunksize=313))
    assert dictionary_columns(chunks, kept) == [path for path, keep in kept.items() if keep]


def test_lists_that_are_empty_or_null_are_not_judged() -> None:
    lists = pa.array([[], None] * 10_000, pa.list_(pa.int64()))
    assert dictionary_columns(pa.table({"l": lists}), ["l.list.element"]) == ["l.list.element"]


def test_rows_in_many_chunks_are_judged_alike() -> None:
    rows = pa.table({"a": _DIFFERENT["texts"], "b": _REPEATED["runs"]})
    chunks = pa.Table.from_batches(rows.to_batches(max_chunksize=313))
    assert dictionary_columns(chunks, ["a", "b"]) == ["b"]
