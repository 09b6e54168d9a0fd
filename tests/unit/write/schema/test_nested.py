"""Nested arrays taken apart: only visible values are left, in order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from icestream.write.schema.nested import decode, nulls, take, take_apart, takeable, without_nulls


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
    ],
    ids=str,
)
def test_slices_of_lists_have_their_own_values(kind: pa.DataType) -> None:
    array = pa.array([[0], [1, 2], None, [], [3], [4]], kind).slice(1, 4)
    lists = take_apart(array)
    assert lists.offsets.type == pa.int32()
    assert lists.offsets.to_pylist() == [0, 2, 2, 2, 3]
    assert lists.visible(array.values).to_pylist() == [1, 2, 3]
    assert lists.nulls is not None
    assert lists.nulls.to_pylist() == [False, True, False, False]


def test_lists_of_fixed_size_skip_the_values_below_a_null() -> None:
    array = pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2))
    lists = take_apart(array)
    assert lists.offsets.to_pylist() == [0, 2, 2, 4]
    assert lists.visible(array.values).to_pylist() == [1, 2, 3, 4]


def test_views_may_share_and_reorder_their_values() -> None:
    array = pa.ListViewArray.from_arrays([2, 0, 1], [1, 2, 2], pa.array(["a", "b", "c"]))
    lists = take_apart(array)
    assert lists.offsets.to_pylist() == [0, 1, 3, 5]
    assert lists.visible(array.values).to_pylist() == ["c", "a", "b", "b", "c"]


def test_values_under_a_null_are_left_out() -> None:
    array = pa.ListArray.from_arrays([0, 2, 3], pa.array([1, 2, 3]), mask=pa.array([True, False]))
    lists = take_apart(array)
    assert lists.offsets.to_pylist() == [0, 0, 1]
    assert lists.visible(array.values).to_pylist() == [3]


def test_values_are_taken_from_types_that_arrow_can_not_take_from() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    views = pa.array([["x", "y"], None, ["z"]], pa.list_view(pa.string_view()))
    for array, expected in ((runs, ["b", "a"]), (views, [["z"], ["x", "y"]])):
        taken = take(array, pa.array([2, 0]))
        assert taken.to_pylist() == expected
        assert taken.type == takeable(array.type)


def test_dictionaries_and_slices_of_runs_are_decoded() -> None:
    coded = pa.array(["a", None, "a"]).dictionary_encode()
    assert decode(coded).to_pylist() == ["a", None, "a"]
    runs = pa.RunEndEncodedArray.from_arrays([2, 3, 5], ["a", None, "b"]).slice(1, 3)
    assert decode(runs).to_pylist() == ["a", None, "b"]
    visible = pa.array([False, True, True])
    assert decode(runs, visible).to_pylist() == [None, None, "b"]


def test_marks_of_hidden_nulls_are_taken_off_at_every_depth() -> None:
    required = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    kind = pa.struct([pa.field("inner", required, nullable=False)])
    array = nulls(3, kind)
    assert array.null_count == 3
    assert array.field(0).null_count == 0
    assert array.field(0).field(0).null_count == 0
    for kind in (pa.string(), pa.list_(pa.int64()), pa.uuid(), pa.map_(pa.int32(), pa.int32())):
        plain = without_nulls(pa.nulls(3, kind))
        assert plain.null_count == 0
        plain.validate(full=True)
