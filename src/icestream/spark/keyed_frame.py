"""The rows that are merged, with their keys as numbers: computed once, checked before the join.

Neither a key nor a row comes to the driver: counts do, the lowest and highest key, and a sieve of a
few bits for each key. Of keys that are refused, a few examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.errors import DuplicateKeysError, InvalidDataError
from icestream.spark.arrow_map import map_in_arrow, quoted_in
from icestream.spark.installed import pyspark_module
from icestream.spark.plain_record import decode, encode
from icestream.spark.task_failure import note_error
from icestream.spark.worker_memory import note_base
from icestream.upsert.key_hash import Keys
from icestream.upsert.key_index import Sieve
from icestream.upsert.key_range import KeyRange
from icestream.upsert.merge_work import KEY_FIELDS, MergeWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY_NAMES = tuple(field.name for field in KEY_FIELDS)
_FACTS = "__icestream_facts"
_ORDER = "__icestream_order"
_COUNT = "__icestream_count"
_EXAMPLES = 5
_MOST_SIEVE_BYTES = 8 << 20
_SIEVE_PARTS = 8
# So little is worked on by one task: shuffles would take longer than the work.
_FEW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a task saw of the frame."""

    rows: int
    nulls: int
    bytes: int
    bounds: list[tuple[Any, Any] | bool]


@dataclass(frozen=True, slots=True)
class _Keyed:
    """In a task: batches with their keys, and one more row that tells what was in them."""

    work: MergeWork

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        facts = encode(_Facts(rows, nulls, size, key_range.bounds()))
        nothing = [pa.nulls(1, field.type) for field in schema]
        names = schema.names
        yield _with_facts(pa.RecordBatch.from_arrays(nothing, names), pa.array([facts]))


def _with_facts(batch: pa.RecordBatch, facts: pa.Array) -> pa.RecordBatch:
    # That row has nulls in columns that the frame says have none.
    fields = [field.with_nullable(True) for field in batch.schema]
    schema = pa.schema([*fields, pa.field(_FACTS, pa.binary())])
    return pa.RecordBatch.from_arrays([*batch.columns, facts], schema=schema)


@dataclass(frozen=True, slots=True)
class _Sieved:
    """In a task: one sieve of all keys."""

    rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sieve = Sieve(_MOST_SIEVE_BYTES, self.rows)
        for batch in batches:
            words = batch.column(0).drop_null().to_numpy().view("uint64")
            sieve.add(Keys(words, None, None))
        yield pa.record_batch([pa.array([sieve.to_bytes()], pa.binary())], names=["sieve"])


class KeyedFrame:
    """A frame that is merged.

    Spark computes it once and keeps it, in memory and on disk: a frame that is not deterministic
    would otherwise be another one in each job of the merge.

    Args:
        frame: What the caller gave.
        work: What the merge does; its files do not matter here.
    """

    def __init__(self, frame: DataFrame, work: MergeWork) -> None:
        self._functions = pyspark_module("pyspark.sql.functions")
        types = pyspark_module("pyspark.sql.types")
        self._work = work
        self._key = work.plan.key
        kinds = (types.LongType(), types.LongType(), types.BinaryType())
        own = [types.StructField(*each) for each in zip(KEY_NAMES, kinds, strict=True)]
        own.append(types.StructField(_FACTS, types.BinaryType()))
        given = (types.StructField(f.name, f.dataType, True) for f in frame.schema.fields)
        schema = types.StructType([*given, *own])
        keyed = map_in_arrow(frame, _Keyed(work), schema)
        if work.plan.options.on_duplicate == "last":
            keyed = keyed.withColumn(_ORDER, self._functions.monotonically_increasing_id())
        self._persisted = keyed.persist()
        self._kept = self._persisted.where(f"{_FACTS} is null").drop(_FACTS)
        self.frame: DataFrame = self._kept
        self.rows = 0
        self.row_bytes = 0.0
        self.has_null_keys = False
        self.is_small = False
        self.rows_superseded = 0

    def close(self) -> None:
        """Let Spark forget the rows."""
        self._persisted.unpersist()

    def check(self) -> KeyRange:
        """Count rows, refuse null keys and duplicates, or leave the last of these.

        Returns:
            The lowest and highest keys.

        Raises:
            InvalidDataError: If keys are null.
            DuplicateKeysError: If rows share their key.
        """
        rows = self._persisted.where(f"{_FACTS} is not null").select(_FACTS).collect()
        seen = [decode(bytes(row[0]), _Facts) for row in rows]
        self.rows = sum(each.rows for each in seen)
        size = sum(each.bytes for each in seen)
        self.row_bytes = size / max(1, self.rows)
        self.is_small = size <= _FEW_BYTES
        if self.is_small:
            self.frame = self._kept = self._kept.coalesce(1)
        nulls = sum(each.nulls for each in seen)
        self.has_null_keys = nulls > 0
        if nulls and self._work.plan.options.null_keys == "error":
            raise self._null_keys(nulls)
        self._deduplicate()
        result = KeyRange(self._key)
        for each in seen:
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
        told = repeated.agg(
            functions.sum(_COUNT).alias("rows"),
            functions.count(functions.lit(1)).alias("keys"),
        ).collect()[0]
        if options.on_duplicate == "error":
            raise self._duplicates(told["rows"], examples)
        window = pyspark_module("pyspark.sql.window").Window
        order = [functions.col(_ORDER).desc()]
        if options.last_by is not None:
            order.insert(
                0, functions.col(quoted_in(self._kept.columns, options.last_by)).desc_nulls_last()
            )
        rank = functions.row_number().over(window.partitionBy(*KEY_NAMES).orderBy(*order))
        ranked = self._kept.where(has_key).withColumn(_COUNT, rank).where(f"{_COUNT} = 1")
        self.frame = ranked.drop(_COUNT).unionByName(self._kept.where(~has_key))
        self.rows_superseded = told["rows"] - told["keys"]

    def _shown(self) -> list[Any]:
        """The key's columns, by the names that the caller knows them by."""
        functions, columns = self._functions, self._kept.columns
        return [functions.col(quoted_in(columns, name)).alias(name) for name in self._key.names]

    def _duplicates(self, rows: int, examples: list[Any]) -> DuplicateKeysError:
        shown = tuple(_text(row["example"]) for row in examples)
        return DuplicateKeysError(
            f"{rows} rows of the frame share their key with another, such as {'; '.join(shown)}: "
            "remove them, or merge with on_duplicate='last' and last_by= the column that tells "
            "which one counts. Nothing was changed",
            column=", ".join(self._key.names),
            examples=shown,
        )

    def _null_keys(self, count: int) -> InvalidDataError:
        without = self._kept.where(self._kept[KEY_NAMES[0]].isNull())
        example = without.select(*self._shown()).first()
        assert example is not None
        missing = next(name for name in self._key.names if example[name] is None)
        return InvalidDataError(
            f"{count} rows of the frame have a null in their key, such as the one with "
            f"{_text(example)}: fill them, or merge with null_keys='insert' to insert such rows "
            "without looking for matches",
            column=missing,
        )


def _text(row: Any) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in row.asDict().items())
