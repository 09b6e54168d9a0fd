"""The Python data source that reads a task's share in an executor.

The plan is made before Spark sees anything (`icestream.spark.read`) and travels in an option: one
pickled list of splits for each task. The planning process hands the shares out as they are, and a
task unpickles its own alone.
"""

from __future__ import annotations

import base64
import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from icestream.errors import InvalidArgumentError
from icestream.read.order import TaskOrder
from icestream.read.scan import read_splits
from icestream.read.split import Split
from icestream.spark.conversion import SparkBatches
from icestream.spark.sink import IcestreamWriter

FORMAT = "icestream"
PLAN_OPTION = "plan"


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What the tasks of a read do.

    Attributes:
        shares: For each task its splits, pickled.
        memory_bytes: What a task may hold.
        batch_rows: The most rows in a batch; None leaves it to the scan.
    """

    shares: tuple[bytes, ...]
    memory_bytes: int
    batch_rows: int | None

    @classmethod
    def of(
        cls, packed: Sequence[Sequence[Split]], *, memory_bytes: int, batch_rows: int | None
    ) -> TaskPlan:
        """A plan for shares of splits."""
        shares = tuple(pickle.dumps(list(splits)) for splits in packed)
        return cls(shares, memory_bytes, batch_rows)

    def to_option(self) -> str:
        """The plan as text, which is what options are."""
        return base64.b64encode(zlib.compress(pickle.dumps(self))).decode("ascii")

    @classmethod
    def from_option(cls, text: str) -> TaskPlan:
        """The plan that `to_option` wrote."""
        plan: TaskPlan = pickle.loads(zlib.decompress(base64.b64decode(text)))
        return plan


class IcestreamSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("icestream")`, with a plan made by `icestream.spark.read`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Never known here: `icestream.spark.read` gives it."""
        raise _no_plan()

    def reader(self, schema: Any) -> IcestreamReader:
        """The reader of the plan in the options."""
        # Spark sends this object along with every task: let it not hold the plan of them all.
        text = self.options.pop(PLAN_OPTION, None)
        if text is None:
            raise _no_plan()
        return IcestreamReader(TaskPlan.from_option(text))

    def writer(self, schema: Any, overwrite: bool) -> IcestreamWriter:
        """The writer of a frame: see `icestream.spark.sink`."""
        return IcestreamWriter(self.options, schema, overwrite)


def _no_plan() -> InvalidArgumentError:
    return InvalidArgumentError(
        'format("icestream") needs a plan: use icestream.spark.read(spark, "db.t"), which makes it'
    )


class Share(InputPartition):  # type: ignore[misc]
    """One task's splits, pickled; the base class holds them as `value`."""


class IcestreamReader(DataSourceReader):  # type: ignore[misc]
    """Hands out shares on the driver's side and reads one in a task."""

    def __init__(self, plan: TaskPlan) -> None:
        self._shares = plan.shares
        self._memory_bytes = plan.memory_bytes
        self._batch_rows = plan.batch_rows

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: its share comes as a partition, the others need not travel."""
        return {**self.__dict__, "_shares": ()}

    def partitions(self) -> list[Share]:
        """One share for each task."""
        return [Share(share) for share in self._shares]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a share.

        Memory: what the scan holds stays within the task's limit; a batch is on its way to the JVM
            beside it.
        """
        if not isinstance(partition, Share):  # Spark's stand-in for a plan without partitions
            return
        splits: list[Split] = pickle.loads(partition.value)
        with read_splits(
            splits,
            memory=self._memory_bytes,
            batch_size=self._batch_rows,
            order=TaskOrder(),
        ) as scan:
            convert = SparkBatches(scan.schema)
            for batch in scan:
                yield convert(batch)
