"""The rows of a merge with their keys as numbers, computed once and checked before the join.

The driver gets counts, the lowest and highest key, and a sieve with a few bits for each key. It
gets no other keys or rows, except a few examples of refused keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.errors import DuplicateKeysError, InvalidDataError
from icestream.memory.budget import MemoryBudget
from icestream.operations.merge.keys.key_hash import Keys
from icestream.operations.merge.keys.key_index import Sieve
from icestream.operations.merge.keys.key_range import KeyRange
from icestream.operations.merge.merge_work import KEY_FIELDS, MergeWork
from icestream.report.counted import counted
from icestream.spark.arrow.frame_schema import quoted_in
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.tasks.plain_record import decode, encode
from icestream.spark.tasks.task_notes import note_base, note_error
from icestream.spark.writing.written_frame import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY_NAMES = tuple(field.name for field in KEY_FIELDS)
_FACTS = "__icestream_facts"
_ORDER = "__icestream_order"
_COUNT = "__icestream_count"
_EXAMPLES = 5
_MOST_SIEVE_BYTES = 8 << 20
_SIEVE_PARTS = 8
# One task handles frames up to this size, because shuffles would take longer than the work.
_FEW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Facts:
    """The statistics of a task's part of the frame."""

    rows: int
    nulls: int
    bytes: int
    bounds: list[tuple[Any, Any] | bool]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class _Keyed:
    """In a task: adds keys to the batches, and appends one row with statistics."""

    work: MergeWork

    def __call__(
        self, batches: Iterable[pa.RecordBatch], budget: MemoryBudget | None
    ) -> Iterator[pa.RecordBatch]:
        note_base()
        rows = nulls = size = 0
        key_range = KeyRange(self.work.plan.key)
        schema = pa.schema([*self.work.plan.stream, *KEY_FIELDS])
        with note_error():
            for batch in self.work.keyed(batches, key_range):
                schema = batch.schema
                rows += batch.num_rows
                nulls += batch.column(KEY_NAMES[0]).null_count
                size += batch.nbytes
                yield _with_facts(batch, pa.nulls(batch.num_rows, pa.binary()))
        peak = 0 if budget is None else budget.peak_bytes
        facts = encode(_Facts(rows, nulls, size, key_range.bounds(), peak))
        nothing = [pa.nulls(1, field.type) for field in schema]
        names = schema.names
        yield _with_facts(pa.RecordBatch.from_arrays(nothing, names), pa.array([facts]))


def _with_facts(batch: pa.RecordBatch, facts: pa.Array) -> pa.RecordBatch:
    # The row with statistics has nulls, also in columns that are not nullable in the frame.
    fields = [field.with_nullable(True) for field in batch.schema]
    schema = pa.schema([*fields, pa.field(_FACTS, pa.binary())])
    return pa.RecordBatch.from_arrays([*batch.columns, facts], schema=schema)


@dataclass(frozen=True, slots=True)
class _Sieved:
    """In a task: one sieve of all its keys."""

    rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sieve = Sieve(_MOST_SIEVE_BYTES, self.rows)
        for batch in batches:
            words = batch.column(0).drop_null().to_numpy().view("uint64")
            sieve.add(Keys(words, None, None))
        yield pa.record_batch([pa.array([sieve.to_bytes()], pa.binary())], names=["sieve"])


class KeyedFrame:
    """The frame of a merge.

    Spark computes the frame once and keeps it in memory and on disk. Otherwise a frame that is not
    deterministic could have different rows in each job of the merge, and files could change.

    Args:
        rows: The rows to merge.
        work: The merge.
    """

    def __init__(self, rows: Rows, work: MergeWork) -> None:
        self._functions = pyspark_module("pyspark.sql.functions")
        types = pyspark_module("pyspark.sql.types")
        self._work = work
        self._key = work.plan.key
        kinds = (types.LongType(), types.LongType(), types.BinaryType())
        own = [types.StructField(*each) for each in zip(KEY_NAMES, kinds, strict=True)]
        own.append(types.StructField(_FACTS, types.BinaryType()))
        given = (types.StructField(f.name, f.dataType, True) for f in rows.columns.fields)
        schema = types.StructType([*given, *own])
        keyed = rows.mapped(_Keyed(work.for_workers()), schema, work.memory_bytes)
        if work.plan.options.on_duplicate == "last":
            keyed = keyed.withColumn(_ORDER, self._functions.monotonically_increasing_id())
        self._persisted = keyed.persist()
        self._kept = self._persisted.where(f"{_FACTS} is null").drop(_FACTS)
        self.frame: DataFrame = self._kept
        self.rows = 0
        self.bytes = 0
        self.row_bytes = 0.0
        self.has_null_keys = False
        self.is_small = False
        self.rows_superseded = 0
        self.peak_bytes = 0

    def close(self) -> None:
        """Release the rows that Spark keeps."""
        self._persisted.unpersist()

    def check(self) -> KeyRange:
        """Count rows, refuse null keys, and refuse duplicates or keep the last of them.

        Returns:
            The lowest and highest keys.

        Raises:
            InvalidDataError: If keys are null.
            DuplicateKeysError: If rows have the same key.
        """
        rows = self._persisted.where(f"{_FACTS} is not null").select(_FACTS).collect()
        facts = [decode(bytes(row[0]), _Facts) for row in rows]
        self.rows = sum(each.rows for each in facts)
        self.bytes = size = sum(each.bytes for each in facts)
        self.row_bytes = size / max(1, self.rows)
        self.peak_bytes = max((each.peak_bytes for each in facts), default=0)
        self.is_small = size <= _FEW_BYTES
        if self.is_small:
            self.frame = self._kept = self._kept.coalesce(1)
        nulls = sum(each.nulls for each in facts)
        self.has_null_keys = nulls > 0
        if nulls and self._work.plan.options.null_keys == "error":
            raise self._null_keys(nulls)
        self._deduplicate()
        result = KeyRange(self._key)
        for each in facts:
            result.add_bounds(each.bounds)
        return result

    def sieve(self) -> Sieve:
        """A sieve of all keys."""
        keys = self.frame.select(KEY_NAMES[0]).coalesce(_SIEVE_PARTS)
        result = Sieve(_MOST_SIEVE_BYTES, self.rows)
        for row in keys.mapInArrow(_Sieved(self.rows), "sieve binary").collect():
            result.add_all(bytes(row[0]))
        return result

    def _deduplicate(self) -> None:
        functions, options = self._functions, self._work.plan.options
        has_key = self._kept[KEY_NAMES[0]].isNotNull()
        groups = self._kept.where(has_key).groupBy(*KEY_NAMES)
        example = functions.first(functions.struct(*self._shown()))
        repeated = groups.agg(
            functions.count(functions.lit(1)).alias(_COUNT), example.alias("example")
        ).where(functions.col(_COUNT) > 1)
        examples = repeated.limit(_EXAMPLES).collect()
        if not examples:
            return
        counts = repeated.agg(
            functions.sum(_COUNT).alias("rows"),
            functions.count(functions.lit(1)).alias("keys"),
        ).collect()[0]
        if options.on_duplicate == "error":
            raise self._duplicates(counts["rows"], examples)
        window = pyspark_module("pyspark.sql.window").Window
        order = [functions.col(_ORDER).desc()]
        if options.last_by is not None:
            order.insert(
                0, functions.col(quoted_in(self._kept.columns, options.last_by)).desc_nulls_last()
            )
        rank = functions.row_number().over(window.partitionBy(*KEY_NAMES).orderBy(*order))
        ranked = self._kept.where(has_key).withColumn(_COUNT, rank).where(f"{_COUNT} = 1")
        self.frame = ranked.drop(_COUNT).unionByName(self._kept.where(~has_key))
        self.rows_superseded = counts["rows"] - counts["keys"]

    def _shown(self) -> list[Any]:
        """The columns of the key, under the caller's names."""
        functions, columns = self._functions, self._kept.columns
        return [functions.col(quoted_in(columns, name)).alias(name) for name in self._key.names]

    def _duplicates(self, rows: int, examples: list[Any]) -> DuplicateKeysError:
        shown = tuple(_text(row["example"]) for row in examples)
        return DuplicateKeysError(
            f"{counted(rows, 'row')} of the frame repeat the key of another row, such as "
            f"{'; '.join(shown)}: remove them, or merge with on_duplicate='last' and "
            "last_by= the column that says which row is the last. The table was not changed",
            column=", ".join(self._key.names),
            examples=shown,
        )

    def _null_keys(self, count: int) -> InvalidDataError:
        without = self._kept.where(self._kept[KEY_NAMES[0]].isNull())
        example = without.select(*self._shown()).first()
        assert example is not None
        missing = next(name for name in self._key.names if example[name] is None)
        return InvalidDataError(
            f"there is a null in the key of {counted(count, 'row')} of the frame, such as "
            f"the row with {_text(example)}: fill in the nulls, or merge with null_keys='insert' "
            "to insert such rows without looking for matches",
            column=missing,
        )


def _text(row: Any) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in row.asDict().items())
