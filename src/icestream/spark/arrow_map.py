"""Columns of a frame by their names, whatever these are: PySpark takes a dot for a nested field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.spark.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ROW = "__icestream_row"


def quoted(*path: str) -> str:
    """How Spark is told of a column, or of a field in structs of it."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def quoted_in(columns: Sequence[str], name: str) -> str:
    """The same for a name with dots for fields of structs, unless a column has just that name."""
    return quoted(name) if name in columns else quoted(*name.split("."))


def map_in_arrow(frame: DataFrame, function: _Map, schema: Any) -> DataFrame:
    """`frame.mapInArrow`, which fails where columns have names with dots or backticks."""
    if not any("." in name or "`" in name for name in frame.columns):
        return frame.mapInArrow(function, schema)
    functions = pyspark_module("pyspark.sql.functions")
    whole = frame.select(functions.struct("*").alias(_ROW))
    return whole.mapInArrow(_OfStructs(function), schema)


@dataclass(frozen=True, slots=True)
class _OfStructs:
    """In a task: gives the function the columns of which there are structs."""

    function: _Map

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.function(
            pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches
        )
