"""Which partition each row belongs to: whole batches at a time, by integers."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
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
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
    VoidTransform,
)
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

from icestream.errors import InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from icestream.write import transforms
from icestream.write.decimals import Unscaled
from icestream.write.stable_order import stable_order

Ids = npt.NDArray[np.int64]

_FIELD_ID = b"PARQUET:field_id"
_MICROS_PER_DAY = 86_400 * 10**6
# 0001-01-01 and 9999-12-31: no date outside of them has a name to put into a path.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
# Every number of so many digits fits into 64 bits.
_LONG_DIGITS = 18


class Partitioner:
    """Gives every row the number of its partition, and every number its partition's values.

    Numbers count from 0 in the order in which partitions are first seen, over all batches. Null is
    a partition of its own, and so is NaN (all NaN together). Floats are told apart by their bits:
    -0.0 and 0.0 are two partitions, since readers may take a column's values from its partition.

    Not safe for several threads at once.

    Memory: about 300 bytes for each partition seen; `ids` needs about 50 bytes for each row of the
    batch while it runs, and 8 bytes for its result.
    """

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        """Prepare for batches whose columns carry the field ids of a schema.

        Args:
            schema: The table's schema.
            spec: The partition spec that files are written under; of one without fields, every row
                is in the one partition 0.

        Raises:
            UnsupportedFeatureError: A transform is unknown or not for its column's type, or the
                schema lacks a field's column.
        """
        self._sources = [_Source.of(schema, field) for field in spec.fields]
        self._ids: dict[tuple[Any, ...], int] = {}
        self._seen: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        """How many partitions were seen."""
        return len(self._seen)

    def ids(self, batch: pa.RecordBatch) -> Ids:
        """The partition of each row.

        Raises:
            InvalidArgumentError: The batch lacks a column with a source's field id.
            InvalidDataError: A value can't be a partition: out of its type's range, or a date
                without a name (before year 1, after 9999).
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
        """A partition's values, as `DataFile.partition` holds them in a manifest that is read.

        Dates are days, timestamps and times microseconds (nanoseconds for the ns types), all since
        1970 or midnight; decimals are `Decimal`, UUIDs are `UUID`, NaN is `math.nan` itself.
        """
        raw = self._seen[partition_id]
        return tuple(
            None if value is None else source.value(value)
            for source, value in zip(self._sources, raw, strict=True)
        )

    def path(self, partition_id: int) -> str:
        """A partition's directory, Hive style: `day=2024-02-29/category=red`."""
        key = self.key(partition_id)
        return "/".join(
            source.label(value) for source, value in zip(self._sources, key, strict=True)
        )

    def split(self, batch: pa.RecordBatch, ids: Ids) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of each partition of a batch: the function `split`."""
        return split(batch, ids)

    def _local(self, batch: pa.RecordBatch) -> tuple[Ids, Sequence[tuple[Any, ...]]]:
        """Number the partitions of one batch: each row's number, and each number's raw values."""
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
        """The number of a partition, a new one if it was not seen before."""
        number = self._ids.get(raw)
        if number is None:
            for source, value in zip(self._sources, raw, strict=True):
                source.check(value)
            number = len(self._seen)
            self._ids[raw] = number
            self._seen.append(raw)
        return number


def cluster(batch: pa.RecordBatch, ids: Ids) -> tuple[pa.RecordBatch, Ids, Ids]:
    """Bring the rows of each partition together, in their order.

    A batch in which they are together already is returned as it is, partitions in the order of
    their rows; otherwise its rows are taken once, partitions in the order of their numbers.

    Returns:
        The batch; the partitions in it; where each one starts, and at last the number of rows.

    Memory: a copy of the batch, unless it was clustered.
    """
    if not len(ids):
        return batch, ids, np.zeros(1, dtype=np.int64)
    present, starts = _runs(ids)
    if _repeats(present):
        order = stable_order(ids)
        batch = batch.take(pa.array(order))
        present, starts = _runs(ids[order])
    return batch, present, np.append(starts, len(ids))


def split(batch: pa.RecordBatch, ids: Ids) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Give the rows of each partition of a batch, each partition once.

    The parts are slices: of the batch itself if it was clustered by partition, else of one copy of
    it. Whoever keeps one keeps all of that memory.
    """
    if len(ids) and ids[0] == ids[-1] and (ids == ids[0]).all():
        yield int(ids[0]), batch
        return
    batch, present, starts = cluster(batch, ids)
    bounds = starts.tolist()
    for number, start, stop in zip(present.tolist(), bounds, bounds[1:], strict=False):
        yield number, batch.slice(start, stop - start)


@dataclass(slots=True)
class _Source:
    """A field of the spec: where its column is, and what becomes of it."""

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
                    f"the partition field {field.name!r} is made from column {field.source_id}, "
                    "which the table no longer has: change the table's partition spec"
                )
            return cls(field, UnknownType(), UnknownType(), field.name, _same, None)
        source_type = schema.find_type(field.source_id)
        transforms.check(field.transform, source_type, column=name)
        result_type = field.transform.result_type(source_type)
        limits = _limits(field.transform, source_type)
        return cls(field, source_type, result_type, name, _value_maker(result_type), limits)

    def encoded(self, batch: pa.RecordBatch) -> tuple[Ids, list[Any]]:
        """Number the field's distinct values: each row's number, and each number's raw value."""
        transform = self.field.transform
        if isinstance(transform, VoidTransform):
            return _encode(pa.nulls(batch.num_rows))
        values = transforms.apply(transform, self.type, self._find(batch), column=self.name)
        try:
            return _encode(values)
        except UnicodeDecodeError as error:
            raise InvalidDataError(
                f"column {self.name!r} has a text that is no UTF-8: {error}", column=self.name
            ) from error

    def label(self, value: Any) -> str:
        """The field's part of a path: the same as `PartitionSpec.partition_to_path` makes."""
        text = self.field.transform.to_human_string(self.result_type, value)
        return f"{quote_plus(self.field.name, safe='')}={quote_plus(text, safe='')}"

    def check(self, raw: Any) -> None:
        """Refuse a value that no path can name."""
        if raw is None or self.limits is None:
            return
        if not self.limits[0] <= raw <= self.limits[1]:
            raise InvalidDataError(
                f"column {self.name!r} has a value whose partition ({self.field.transform} = {raw})"
                " is out of range: dates must lie in the years 1 to 9999, times in one day",
                column=self.name,
            )

    def _find(self, batch: pa.RecordBatch) -> pa.Array:
        schema = batch.schema
        known = self._path and self._path[0] < len(schema)
        if not known or not schema.field(self._path[0]).equals(self._column, check_metadata=True):
            path = _path_to(schema, self.field.source_id)
            if path is None:
                raise InvalidArgumentError(
                    f"the batch has no column with field id {self.field.source_id} ({self.name!r}),"
                    f" by which the table is partitioned; its columns are {schema.names}"
                )
            self._path, self._column = path, schema.field(path[0])
        column = batch.column(self._path[0])
        # Null where a parent is null.
        return pc.struct_field(column, list(self._path[1:])) if len(self._path) > 1 else column


def _path_to(fields: pa.Schema | pa.StructType, field_id: int) -> tuple[int, ...] | None:
    """The positions that lead to the field with an id, through structs."""
    for position, field in enumerate(fields):
        if int((field.metadata or {}).get(_FIELD_ID, -1)) == field_id:
            return (position,)
        if isinstance(field.type, pa.StructType):
            below = _path_to(field.type, field_id)
            if below is not None:
                return (position, *below)
    return None


def _encode(values: pa.Array) -> tuple[Ids, list[Any]]:
    """Number the distinct values in the order of their first rows: each row's number, the values.

    The values are raw: floats are the integers of their bits and decimals their unscaled values,
    so that they are told apart exactly, and quickly.
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
    """The bits of floats, those of every NaN the same."""
    nan = pc.is_nan(values)
    if pc.any(nan).as_py():
        values = pc.if_else(nan, pa.scalar(math.nan, values.type), values)
    return values.view(pa.int32() if values.type == pa.float32() else pa.int64())


def _decimal_bits(values: pa.Array) -> pa.Array:
    """The unscaled values of decimals: integers if every one fits, else their bytes."""
    if values.type.precision > _LONG_DIGITS:
        return values.view(pa.binary(16))
    low = Unscaled.of(values).low.view(np.int64)
    return pa.array(low, mask=values.is_null().to_numpy(zero_copy_only=False))


def _combine(
    codes: Ids, parts: list[Ids], field_codes: Ids, field_count: int
) -> tuple[Ids, list[Ids]]:
    """Number the combinations of earlier fields' numbers with those of one more field.

    Args:
        codes: Each row's combination of the earlier fields.
        parts: For each earlier field, its number in each combination.
        field_codes: Each row's number of the new field.
        field_count: How many numbers that field has.
    """
    if field_count == 1:
        return codes, [*parts, np.zeros(len(parts[0]), dtype=np.int64)]
    # Below 2**62: neither number exceeds the rows of a batch, of which there are less than 2**31.
    encoded = pa.array(codes * field_count + field_codes).dictionary_encode()
    earlier, later = np.divmod(encoded.dictionary.to_numpy(), field_count)
    return encoded.indices.to_numpy().astype(np.int64), [*(part[earlier] for part in parts), later]


def _runs(ids: Ids) -> tuple[Ids, Ids]:
    """The runs of equal numbers: which number, and where each starts."""
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1))
    return ids[starts], starts


def _repeats(numbers: Ids) -> bool:
    """Whether a number occurs twice."""
    lowest = int(numbers.min())
    span = int(numbers.max()) - lowest + 1
    if span < len(numbers):
        return True
    if span > 16 * len(numbers):
        return len(np.unique(numbers)) < len(numbers)
    return bool(np.bincount(numbers - lowest).max() > 1)


def _value_maker(result_type: IcebergType) -> Callable[[Any], Any]:
    """What makes a partition value of a raw one."""
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
    # One object for every NaN: keys with it are then equal, as Python compares tuples.
    return math.nan if math.isnan(value) else value


def _same(value: Any) -> Any:
    return value


def _limits(transform: Transform[Any, Any], source_type: IcebergType) -> tuple[int, int] | None:
    """The smallest and the largest value that a path can name, if not every value can be named."""
    if isinstance(transform, HourTransform):
        return _FIRST_DAY * 24, _LAST_DAY * 24 + 23
    if isinstance(transform, DayTransform):
        return _FIRST_DAY, _LAST_DAY
    if not isinstance(transform, IdentityTransform):
        return None
    if isinstance(source_type, DateType):
        return _FIRST_DAY, _LAST_DAY
    if isinstance(source_type, TimeType):
        return 0, _MICROS_PER_DAY - 1
    if isinstance(source_type, (TimestampType, TimestamptzType)):
        return _FIRST_DAY * _MICROS_PER_DAY, (_LAST_DAY + 1) * _MICROS_PER_DAY - 1
    return None
