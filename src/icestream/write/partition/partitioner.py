"""Finds the partition of each row, one batch at a time."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    IdentityTransform,
    Transform,
    VoidTransform,
)
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

from icestream.errors import InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from icestream.read.distant_years import any_year_transform
from icestream.write.partition import transforms
from icestream.write.partition.decimals import Unscaled

Ids = npt.NDArray[np.int64]

_FIELD_ID = b"PARQUET:field_id"
_MICROS_PER_DAY = 86_400 * 10**6
# Every number with this many digits fits into 64 bits.
_LONG_DIGITS = 18


class Partitioner:
    """Numbers the partitions of a stream, and maps each number to its partition's values.

    Numbers start at 0, in the order in which partitions first appear over all batches. Null is a
    separate partition, and so is NaN (all NaNs together). Floats are compared by their bits: -0.0
    and 0.0 are two partitions, because readers may take a column's values from its partition.

    Not thread-safe.

    Memory: about 300 bytes for each partition seen. While it runs, `ids` needs about 50 bytes for
    each row of the batch, and its result 8 bytes.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        """Prepare for batches whose columns carry the schema's field ids.

        Args:
            schema: The table's schema.
            spec: The partition spec of the files. Without fields, all rows are in partition 0.

        Raises:
            UnsupportedFeatureError: A transform is unknown or does not support its column's type,
                or the schema lacks a field's column.
        """
        self._sources = [_Source.of(schema, field) for field in spec.fields]
        self._ids: dict[tuple[Any, ...], int] = {}
        self._seen: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        """The number of partitions seen so far."""
        return len(self._seen)

    def ids(self, batch: pa.RecordBatch) -> Ids:
        """The partition number of each row.

        Raises:
            InvalidArgumentError: The batch lacks a column with a source's field id.
            InvalidDataError: A value can't be a partition because it is out of its type's range.
        """
        if not batch.num_rows:
            return np.zeros(0, dtype=np.int64)
        codes, combinations = self._local(batch)
        known = self._ids
        numbers = [known.get(combination, -1) for combination in combinations]
        if -1 in numbers:
            numbers = [self._number(combination) for combination in combinations]
        if len(numbers) == 1:
            return np.full(batch.num_rows, numbers[0], dtype=np.int64)
        return np.array(numbers, dtype=np.int64)[codes]

    def key(self, partition_id: int) -> tuple[Any, ...]:
        """A partition's values, as `DataFile.partition` holds them after reading a manifest.

        Dates are days since 1970. Timestamps (since 1970) and times (since midnight) are
        microseconds, or nanoseconds for the ns types. Decimals are `Decimal`, UUIDs are `UUID`, and
        NaN is always the object `math.nan`.
        """
        raw = self._seen[partition_id]
        return tuple(
            None if value is None else source.value(value)
            for source, value in zip(self._sources, raw, strict=True)
        )

    def path(self, partition_id: int) -> str:
        """A partition's Hive-style directory, such as `day=2024-02-29/category=red`."""
        key = self.key(partition_id)
        return "/".join(
            source.label(value) for source, value in zip(self._sources, key, strict=True)
        )

    def _local(self, batch: pa.RecordBatch) -> tuple[Ids, Sequence[tuple[Any, ...]]]:
        """Number one batch's partitions. Returns each row's number and each number's raw values."""
        if not self._sources:
            return np.zeros(batch.num_rows, dtype=np.int64), [()]
        encoded = [source.encoded(batch) for source in self._sources]
        codes, values = encoded[0]
        parts = [np.arange(len(values))]
        for field_codes, field_values in encoded[1:]:
            codes, parts = _combine(codes, parts, field_codes, len(field_values))
        columns = [
            [values[code] for code in part.tolist()]
            for part, (_, values) in zip(parts, encoded, strict=True)
        ]
        return codes, list(zip(*columns, strict=True))

    def _number(self, raw: tuple[Any, ...]) -> int:
        """The number of a partition; a new partition gets the next number."""
        number = self._ids.get(raw)
        if number is None:
            for source, value in zip(self._sources, raw, strict=True):
                source.check(value)
            number = len(self._seen)
            self._ids[raw] = number
            self._seen.append(raw)
        return number


@dataclass(slots=True)
class _Source:
    """A partition field with its source column and transform."""

    field: PartitionField
    type: IcebergType
    result_type: IcebergType
    name: str
    value: Callable[[Any], Any]
    limits: tuple[int, int] | None
    _column: pa.Field | None = None
    _path: tuple[int, ...] = ()

    @classmethod
    def of(cls, schema: Schema, field: PartitionField) -> _Source:
        name = schema.find_column_name(field.source_id)
        if name is None:
            if not isinstance(field.transform, VoidTransform):
                raise UnsupportedFeatureError(
                    f"the partition field {field.name!r} has the source column {field.source_id}, "
                    "which the table no longer has: change the table's partition spec"
                )
            return cls(field, UnknownType(), UnknownType(), field.name, _same, None)
        source_type = schema.find_type(field.source_id)
        transforms.check(field.transform, source_type, column=name)
        result_type = field.transform.result_type(source_type)
        limits = _limits(field.transform, source_type)
        return cls(field, source_type, result_type, name, _value_maker(result_type), limits)

    def encoded(self, batch: pa.RecordBatch) -> tuple[Ids, list[Any]]:
        """Number the distinct values. Returns each row's number and each number's raw value."""
        transform = self.field.transform
        if isinstance(transform, VoidTransform):
            return _encode(pa.nulls(batch.num_rows))
        values = transforms.apply(transform, self.type, self._find(batch), column=self.name)
        try:
            return _encode(values)
        except UnicodeDecodeError as error:
            raise InvalidDataError(
                f"column {self.name!r} has text that is not valid UTF-8: {error}", column=self.name
            ) from error

    def label(self, value: Any) -> str:
        """The field's part of a path, the same as in `PartitionSpec.partition_to_path`."""
        text = any_year_transform(self.field).to_human_string(self.result_type, value)
        return f"{quote_plus(self.field.name, safe='')}={quote_plus(text, safe='')}"

    def check(self, raw: Any) -> None:
        """Refuse a value that can't be formatted in a path."""
        if raw is None or self.limits is None:
            return
        if not self.limits[0] <= raw <= self.limits[1]:
            raise InvalidDataError(
                f"column {self.name!r} has a value whose partition ({self.field.transform} = {raw})"
                " is out of range: times must be within one day",
                column=self.name,
            )

    def _find(self, batch: pa.RecordBatch) -> pa.Array:
        schema = batch.schema
        known = self._path and self._path[0] < len(schema)
        if not known or not schema.field(self._path[0]).equals(self._column, check_metadata=True):
            path = path_to(schema, self.field.source_id)
            if path is None:
                raise InvalidArgumentError(
                    f"the batch has no column with field id {self.field.source_id} ({self.name!r}),"
                    f" by which the table is partitioned; its columns are {schema.names}"
                )
            self._path, self._column = path, schema.field(path[0])
        column = batch.column(self._path[0])
        # `struct_field` gives null where a parent is null.
        return pc.struct_field(column, list(self._path[1:])) if len(self._path) > 1 else column


def path_to(fields: pa.Schema | pa.StructType, field_id: int) -> tuple[int, ...] | None:
    """The position of the field with an id, at each level of nested structs."""
    for position, field in enumerate(fields):
        if int((field.metadata or {}).get(_FIELD_ID, -1)) == field_id:
            return (position,)
        if isinstance(field.type, pa.StructType):
            below = path_to(field.type, field_id)
            if below is not None:
                return (position, *below)
    return None


def _encode(values: pa.Array) -> tuple[Ids, list[Any]]:
    """Number the distinct values by first appearance. Returns each row's number and the values.

    The values are raw: the bits of floats and the unscaled values of decimals, as integers, compare
    exactly and quickly.
    """
    if pa.types.is_null(values.type):
        return np.zeros(len(values), dtype=np.int64), [None]
    if pa.types.is_floating(values.type):
        values = _float_bits(values)
    elif pa.types.is_decimal(values.type):
        values = _decimal_bits(values)
    encoded = values.dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _float_bits(values: pa.Array) -> pa.Array:
    """The bits of floats as integers, with the same bits for every NaN."""
    nan = pc.is_nan(values)
    if pc.any(nan).as_py():
        values = pc.if_else(nan, pa.scalar(math.nan, values.type), values)
    return values.view(pa.int32() if values.type == pa.float32() else pa.int64())


def _decimal_bits(values: pa.Array) -> pa.Array:
    """The unscaled values of decimals: 64-bit integers if the type fits, else bytes."""
    if values.type.precision > _LONG_DIGITS:
        return values.view(pa.binary(16))
    low = Unscaled.of(values).low.view(np.int64)
    return pa.array(low, mask=values.is_null().to_numpy(zero_copy_only=False))


def _combine(
    codes: Ids, parts: list[Ids], field_codes: Ids, field_count: int
) -> tuple[Ids, list[Ids]]:
    """Number the combinations of the earlier fields' numbers with one more field's.

    Args:
        codes: Each row's combination of the earlier fields.
        parts: For each earlier field, its number in each combination.
        field_codes: Each row's number in the new field.
        field_count: The number of distinct values in the new field.
    """
    if field_count == 1:
        return codes, [*parts, np.zeros(len(parts[0]), dtype=np.int64)]
    # The product is below 2**62: both factors are at most a batch's rows, fewer than 2**31.
    encoded = pa.array(codes * field_count + field_codes).dictionary_encode()
    earlier, later = np.divmod(encoded.dictionary.to_numpy(), field_count)
    return encoded.indices.to_numpy().astype(np.int64), [*(part[earlier] for part in parts), later]


def _value_maker(result_type: IcebergType) -> Callable[[Any], Any]:
    """The function that converts a raw value to a partition value."""
    if isinstance(result_type, FloatType):
        return lambda bits: _float(struct.unpack("<f", struct.pack("<i", bits))[0])
    if isinstance(result_type, DoubleType):
        return lambda bits: _float(struct.unpack("<d", struct.pack("<q", bits))[0])
    if isinstance(result_type, DecimalType):
        scale = result_type.scale
        if result_type.precision <= _LONG_DIGITS:
            return lambda unscaled: unscaled_to_decimal(unscaled, scale)
        return lambda raw: unscaled_to_decimal(int.from_bytes(raw, "little", signed=True), scale)
    if isinstance(result_type, UUIDType):
        return lambda raw: uuid.UUID(bytes=raw)
    return _same


def _float(value: float) -> float:
    # Python compares tuple items by identity first, so one NaN object makes keys equal.
    return math.nan if math.isnan(value) else value


def _same(value: Any) -> Any:
    return value


def _limits(transform: Transform[Any, Any], source_type: IcebergType) -> tuple[int, int] | None:
    """The range of values that can be formatted in a path, or None if all can be."""
    if isinstance(transform, IdentityTransform) and isinstance(source_type, TimeType):
        return 0, _MICROS_PER_DAY - 1
    return None
