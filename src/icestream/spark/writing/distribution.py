"""Distributes rows to tasks before they are written, so that files are few and large.

| mode | what Spark does | default for |
|---|---|---|
| `none` | nothing: each task writes the rows that it has | other tables |
| `hash` | a partition goes to one task, or to several if it is large | partitioned tables |
| `range` | tasks get ranges of the partitions and of the sort order | tables with a sort order |

The table property `write.distribution-mode` overrides the default, and the caller's `distribution`
overrides both. `hash` uses Spark's rebalancing: with adaptive execution (Spark's default) small
partitions share a task, and a partition larger than `advisory_bytes` is split among several tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakKeyDictionary

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from icestream.errors import InvalidArgumentError
from icestream.operations.row_changes import is_partitioned
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.writing.partition_expressions import expression
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Distribution = Literal["none", "hash", "range"]

DISTRIBUTION_PROPERTY = "write.distribution-mode"
_ADVISORY_SETTING = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_KEY = "__icestream_key"
# Shuffle bytes per byte of Parquet with zstd. A shuffle stores rows one by one.
_SHUFFLED_PER_STORED = 2
# More than one, because the last file of a task is not full.
_FILES_PER_TASK = 2


def check_distribution(distribution: str | None) -> None:
    """Refuse an unknown distribution.

    Raises:
        InvalidArgumentError: If the distribution is unknown. The message lists the valid ones.
    """
    if distribution is not None and distribution not in get_args(Distribution):
        raise InvalidArgumentError(
            f"distribution is {distribution!r}: give 'none', 'hash' or 'range'"
        )


@dataclass(slots=True)
class _Change:
    """The setting of a session before writes changed it. Several writes may run at once."""

    before: str | None
    writes: int = 0

    def undo(self, session: SparkSession) -> None:
        if self.before is None:
            session.conf.unset(_ADVISORY_SETTING)
        else:
            session.conf.set(_ADVISORY_SETTING, self.before)


_changing = Lock()
_changes: WeakKeyDictionary[SparkSession, _Change] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Distributed:
    """A frame whose rows are distributed for a table.

    Attributes:
        frame: The frame.
        advisory_bytes: The size of a task in bytes of a shuffle. None leaves it to Spark.
    """

    frame: DataFrame
    advisory_bytes: int | None = None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Set the size in the session while the job runs."""
        if self.advisory_bytes is None:
            yield
            return
        session: SparkSession = self.frame.sparkSession
        with _changing:
            change = _changes.setdefault(
                session, _Change(session.conf.get(_ADVISORY_SETTING, None))
            )
            change.writes += 1
            session.conf.set(_ADVISORY_SETTING, str(self.advisory_bytes))
        try:
            yield
        finally:
            with _changing:
                change.writes -= 1
                if not change.writes:
                    del _changes[session]
                    change.undo(session)


def distribute(
    frame: DataFrame, target: WriteTarget, distribution: Distribution | None
) -> Distributed:
    """Distribute the rows of a frame for a table.

    Args:
        frame: The rows.
        target: The table.
        distribution: The caller's distribution. By default the table decides.

    Raises:
        InvalidArgumentError: If the table's property has an unknown value.
    """
    mode = distribution or table_mode(
        target.properties, target.spec, target.sort_order, table=target.table
    )
    keys = partition_keys(frame, target)
    if mode == "range":
        order = [*keys, *_order(frame, target)]
        return Distributed(frame.repartitionByRange(*order) if order else frame)
    if mode == "none" or not keys:
        return Distributed(frame)
    # One number for each partition: Spark sorts a number faster than several columns. Rows of two
    # partitions with the same number may be interleaved, which writers can handle.
    number = pyspark_module("pyspark.sql.functions").xxhash64(*keys)
    settings = ParquetSettings.of(target.properties, target.schema)
    rebalanced = frame.withColumn(_KEY, number).hint("rebalance", _KEY)
    return Distributed(
        rebalanced.sortWithinPartitions(_KEY).drop(_KEY),
        settings.target_file_bytes * _SHUFFLED_PER_STORED * _FILES_PER_TASK,
    )


def table_mode(
    properties: Mapping[str, str], spec: PartitionSpec, order: SortOrder, *, table: str
) -> str:
    """The distribution of a table, if the caller gives none.

    Raises:
        InvalidArgumentError: If the table's property has an unknown value.
    """
    mode = properties.get(DISTRIBUTION_PROPERTY)
    if mode is not None:
        if mode.lower() not in get_args(Distribution):
            raise InvalidArgumentError(
                f"the table property {DISTRIBUTION_PROPERTY} of {table} is {mode!r}: set it to "
                "'none', 'hash' or 'range'"
            )
        return mode.lower()
    if order.fields:
        return "range"
    return "hash" if is_partitioned(spec) else "none"


def partition_keys(frame: DataFrame, target: WriteTarget) -> list[Column]:
    """Expressions that are equal for rows of one partition; empty for an unpartitioned table."""
    keys = (
        expression(target.schema, field.source_id, field.transform, frame.columns)
        for field in target.spec.fields
    )
    return [key for key in keys if key is not None]


def _order(frame: DataFrame, target: WriteTarget) -> list[Column]:
    order = []
    for field in target.sort_order.fields:
        key: Any = expression(target.schema, field.source_id, field.transform, frame.columns)
        if key is None:
            continue
        first = field.null_order == NullOrder.NULLS_FIRST
        if field.direction == SortDirection.ASC:
            order.append(key.asc_nulls_first() if first else key.asc_nulls_last())
        else:
            order.append(key.desc_nulls_first() if first else key.desc_nulls_last())
    return order
