"""Rows that tasks have read: counted by them, added up on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from icestream.spark.installed import is_classic, pyspark_module


@dataclass(frozen=True, slots=True)
class CountRows:
    """In a task: says how many rows a part of a source has.

    Attributes:
        counts: What `make_counts` gave.
        source: The source's number.
    """

    counts: Any
    source: int

    def __call__(self, part: int, rows: int) -> None:
        """A part has been read."""
        self.counts.add({(self.source, part): rows})


def make_counts(spark: Any) -> Any:
    """An accumulator of rows by part: one that is read twice counts once. None on Spark Connect."""
    if not is_classic(spark):
        return None
    base: Any = pyspark_module("pyspark.accumulators").AccumulatorParam

    class _Union(base):  # type: ignore[misc]
        def zero(self, value: dict[Any, int]) -> dict[Any, int]:
            return {}

        def addInPlace(self, one: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:  # noqa: N802
            one.update(other)
            return one

    return spark.sparkContext.accumulator({}, _Union())
