"""The rows that are merged, with their keys as numbers: computed once, checked before the join.

Neither a key nor a row comes to the driver: counts do, the lowest and highest key, and a sieve of a
few bits for each key. Of keys that are refused, a few examples.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from icestream.errors import DuplicateKeysError, InvalidDataError
from icestream.spark.installed import pyspark_module
from icestream.spark.task_failure import note_error
from icestream.upsert.key_hash import Keys
from icestream.upsert.key_index import Sieve
from icestream.upsert.key_range import KeyRange
from icestream.upsert.merge_work import KEY_FIELDS, MergeWork
from icestream.write.conform import Conformer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY_NAMES = tuple(field.name for field in KEY_FIELDS)
_ORDER = "icestream_order"
_COUNT = "icestream_count"
_EXAMPLES = 5
_MOST_SIEVE_BYTES = 8 << 20
_SIEVE_PARTS = 8


@dataclass(frozen=True, slots=True)
class _Keyed:
    """In a task: batches with their keys."""

    work: MergeWork

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with note_error():
            yield from self.work.keyed(batches)


@dataclass(frozen=True, slots=True)
class _Sieved:
    """In a task: one sieve of all keys."""

    rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sieve = Sieve(_MOST_SIEVE_BYTES, self.rows)
        for batch in batches:
            words = batch.column(0).drop_null().to_numpy().view("uint64")
            sieve.add(Keys(words, None, None))
        yield pa.record_batch([pa.array([pickle.dumps(sieve)], pa.binary())], names=["sieve"])


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
        schema = types.StructType(
            [
                *frame.schema.fields,
                *(types.StructField(name, types.LongType()) for name in KEY_NAMES),
            ]
        )
        keyed = frame.mapInArrow(_Keyed(work), schema)
        if work.plan.options.on_duplicate == "last":
            keyed = keyed.withColumn(_ORDER, self._functions.monotonically_increasing_id())
        self._kept = keyed.persist()
        self.frame: DataFrame = self._kept
        self.rows = 0
        self.rows_superseded = 0

    def close(self) -> None:
        """Let Spark forget the rows."""
        self._kept.unpersist()

    def check(self) -> KeyRange:
        """Count rows, refuse null keys and duplicates, or leave the last of these.

        Returns:
            The lowest and highest keys.

        Raises:
            InvalidDataError: If keys are null.
            DuplicateKeysError: If rows share their key.
        """
        functions, tops = self._functions, self._top_level()
        bounds = [
            bound(self._kept[name]).alias(f"{bound.__name__}_{number}")
            for number, name in enumerate(tops)
            for bound in (functions.min, functions.max)
        ]
        found = self._kept.agg(
            functions.count(functions.lit(1)).alias("rows"),
            functions.count(self._kept[KEY_NAMES[0]]).alias("keys"),
            *bounds,
        ).toArrow()
        self.rows = found["rows"][0].as_py()
        nulls = self.rows - found["keys"][0].as_py()
        if nulls and self._work.plan.options.null_keys == "error":
            raise self._null_keys(nulls)
        self._deduplicate()
        result = KeyRange(self._key)
        if self.rows > nulls:
            low_high = {
                name: pa.chunked_array([*found[f"min_{n}"].chunks, *found[f"max_{n}"].chunks])
                for n, name in enumerate(tops)
            }
            result.add(self._conformed(low_high))
        return result

    def sieve(self) -> Sieve:
        """A sieve of all keys."""
        keys = self.frame.select(KEY_NAMES[0]).coalesce(_SIEVE_PARTS)
        result = Sieve(_MOST_SIEVE_BYTES, self.rows)
        for row in keys.mapInArrow(_Sieved(self.rows), "sieve binary").toLocalIterator():
            result.add_all(pickle.loads(row[0]))
        return result

    def _top_level(self) -> list[str]:
        """The key's columns that are no fields of structs: only these have bounds in files."""
        return [name for name in self._key.names if "." not in name]

    def _conformed(self, low_high: dict[str, pa.ChunkedArray]) -> list[pa.Array]:
        """Lowest and highest values as the table has them; nothing for fields of structs."""
        columns = {}
        if low_high:
            given = pa.table(low_high)
            fields = [f for f in self._work.target.schema.fields if f.name in low_high]
            schema = Schema(*(_optional(field) for field in fields))
            conformer = Conformer(
                given.schema, schema, mode="freeze", table=self._work.target.table
            )
            batch = conformer.convert(given.combine_chunks().to_batches()[0])
            columns = dict(zip((f.name for f in fields), batch.columns, strict=True))
        kinds = schema_to_pyarrow(Schema(*map(_optional, self._key.fields)))
        nothing = (pa.nulls(1, field.type) for field in kinds)
        names = zip(self._key.names, nothing, strict=True)
        return [columns.get(name, none) for name, none in names]

    def _deduplicate(self) -> None:
        functions, options = self._functions, self._work.plan.options
        has_key = self._kept[KEY_NAMES[0]].isNotNull()
        groups = self._kept.where(has_key).groupBy(*KEY_NAMES)
        example = functions.first(functions.struct(*self._shown()))
        repeated = groups.agg(
            functions.count(functions.lit(1)).alias(_COUNT), example.alias("example")
        ).where(functions.col(_COUNT) > 1)
        told = repeated.agg(
            functions.sum(_COUNT).alias("rows"),
            functions.count(functions.lit(1)).alias("keys"),
        ).collect()[0]
        if not told["keys"]:
            return
        if options.on_duplicate == "error":
            raise self._duplicates(told["rows"], repeated.limit(_EXAMPLES).collect())
        window = pyspark_module("pyspark.sql.window").Window
        order = [functions.col(_ORDER).desc()]
        if options.last_by is not None:
            order.insert(0, self._kept[options.last_by].desc_nulls_last())
        rank = functions.row_number().over(window.partitionBy(*KEY_NAMES).orderBy(*order))
        ranked = self._kept.where(has_key).withColumn(_COUNT, rank).where(f"{_COUNT} = 1")
        self.frame = ranked.drop(_COUNT).unionByName(self._kept.where(~has_key))
        self.rows_superseded = told["rows"] - told["keys"]

    def _shown(self) -> list[Any]:
        """The key's columns, by the names that the caller knows them by."""
        functions = self._functions
        return [functions.col(_quoted(name)).alias(name) for name in self._key.names]

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


def _optional(field: NestedField) -> NestedField:
    return NestedField(field.field_id, field.name, field.field_type, required=False)


def _quoted(name: str) -> str:
    return ".".join(f"`{part}`" for part in name.split("."))


def _text(row: Any) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in row.asDict().items())
