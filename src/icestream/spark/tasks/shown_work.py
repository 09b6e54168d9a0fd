"""Names for Spark's plans and UI: which table a job reads or writes, with which columns and filter.

Plans show the name of a function that tasks run, and the UI shows the description of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icestream.spark.setup.installed import is_classic

_Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_DESCRIPTION = "spark.job.description"
_SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class NamedTask:
    """A function for `mapInArrow` with the name that plans show.

    Attributes:
        function: The function.
        name: The name.
    """

    function: _Map
    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        return self.function(batches)


def read_name(table: str, columns: Sequence[str], where: object) -> str:
    """The name of a read, such as `icestream read db.t (id, price) where price > 10`."""
    name = f"icestream read {table} ({', '.join(columns)})"
    return _short(name if where is None else f"{name} where {where}")


@contextmanager
def described_jobs(spark: Any, what: str) -> Iterator[None]:
    """Describe the jobs of a block in Spark's UI, and restore the description afterwards.

    Args:
        spark: The session. Spark Connect has no such descriptions.
        what: What the jobs do, such as `append to db.t`. It follows the caller's own description.
    """
    if not is_classic(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    text = _short(f"icestream {what}")
    context.setJobDescription(f"{before}: {text}" if before else text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
