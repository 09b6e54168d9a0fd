"""Columns are converted by functions that name the column in what they refuse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import IcebergType, ListType, LongType, NestedField, StructType, UUIDType

from icestream.write.schema.columns import Column, ColumnCompiler, Unstorable, empty_batch


class _Wrapped(pa.ExtensionType):
    """An extension without a meaning of its own."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, data: bytes) -> _Wrapped:
        return cls(storage)


def _column(
    source: pa.DataType,
    wanted: IcebergType,
    target: pa.DataType,
    *,
    required: bool = False,
    loosened: set[int] | None = None,
) -> Column:
    noted: set[int] = set() if loosened is None else loosened
    compiler = ColumnCompiler(downcast_ns=False, loosened=noted)
    field = NestedField(1, "c", wanted, required=required)
    nullable = not required or loosened is not None
    return compiler.column(source, field, pa.field("c", target, nullable), ("c",))


def test_a_column_that_is_right_is_the_same_object() -> None:
    array = pa.array([1, 2])
    assert _column(pa.int64(), LongType(), pa.int64())(array) is array


@pytest.mark.parametrize("storage", [pa.int32(), pa.int64(), pa.null()], ids=str)
def test_extensions_are_converted_as_their_storage(storage: pa.DataType) -> None:
    array = pa.ExtensionArray.from_storage(_Wrapped(storage), pa.nulls(2, storage))
    out = _column(array.type, LongType(), pa.int64())(array)
    assert out.type == pa.int64()
    assert out.to_pylist() == [None, None]
    plain = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16], pa.binary(16)))
    assert _column(pa.uuid(), UUIDType(), pa.uuid())(plain) is plain


def test_a_null_in_a_required_column_is_refused_or_noted() -> None:
    array = pa.array([1, None])
    with pytest.raises(Unstorable, match="null 1 times") as caught:
        _column(pa.int64(), LongType(), pa.int64(), required=True)(array)
    assert caught.value.column == "c"
    noted: set[int] = set()
    column = _column(pa.int64(), LongType(), pa.int64(), required=True, loosened=noted)
    assert column(array).to_pylist() == [1, None]
    assert noted == {1}


def test_a_refusal_names_the_nested_column() -> None:
    wanted = StructType(
        NestedField(2, "x", ListType(3, LongType(), element_required=False), required=False)
    )
    target = pa.struct([("x", pa.list_(pa.field("element", pa.int64())))])
    source = pa.struct([("x", pa.list_(pa.uint64()))])
    with pytest.raises(Unstorable) as caught:
        _column(source, wanted, target)(pa.array([{"x": [2**63]}], source))
    assert caught.value.column == "c.x.element"


def test_nulls_that_a_struct_hides_do_not_count() -> None:
    wanted = StructType(NestedField(2, "x", LongType(), required=True))
    target = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    source = pa.struct([("x", pa.int64())])
    out = _column(source, wanted, target)(pa.array([{"x": 1}, None], source))
    assert out.to_pylist() == [{"x": 1}, None]
    assert out.field(0).null_count == 0


def test_an_empty_batch_may_have_extension_types_at_any_depth() -> None:
    kinds = [pa.uuid(), pa.list_(pa.uuid()), pa.struct([("a", pa.list_(pa.uuid()))])]
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(kinds)])
    assert empty_batch(schema).schema.equals(schema)
    assert empty_batch(schema).num_rows == 0
