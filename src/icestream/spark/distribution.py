"""Rows of a partition come together before they are written: fewer files, at their target size.

| mode | what Spark does | default for |
|---|---|---|
| `none` | nothing: each task writes what it has | tables without partitions and order |
| `hash` | rows of a partition go to one task, or to several if they are many | partitioned ones |
| `range` | tasks get ranges of the partitions and of the sort order | tables with a sort order |

The table property `write.distribution-mode` says otherwise, and the caller's `distribution` over
that. `hash` is Spark's rebalancing: with adaptive execution (Spark's default) small partitions
share a task, and one that is larger than `advisory_bytes` is split among several.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakKeyDictionary

from pyiceberg.table.sorting import NullOrder, SortDirection

from icestream.commit.removal import is_partitioned
from icestream.errors import InvalidArgumentError
from icestream.spark.installed import pyspark_module
from icestream.spark.partition_expressions import expression
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Distribution = Literal["none", "hash", "range"]

_PROPERTY = "write.distribution-mode"
_ADVISORY_SETTING = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_KEY = "__icestream_key"
# A shuffle's bytes for one byte of Parquet with zstd; rows in a shuffle are stored one by one.
_SHUFFLED_PER_STORED = 2
# So many, as the last file of a task is not full.
_FILES_PER_TASK = 2


def check_distribution(distribution: str | None) -> None:
    """Refuse what is no way to distribute rows.

    Raises:
        InvalidArgumentError: Naming those there are.
    """
    if distribution is not None and distribution not in get_args(Distribution):
        raise InvalidArgumentError(
            f"distribution is {distribution!r}: give 'none', 'hash' or 'range'"
        )


@dataclass(slots=True)
class _Change:
    """What a session said before writes changed it, of which several may run at once."""

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
    """A frame whose rows lie as a table wants them.

    Attributes:
        frame: The frame.
        advisory_bytes: What Spark should give a task, in bytes of a shuffle; None: as it likes.
    """

    frame: DataFrame
    advisory_bytes: int | None = None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Have the session know the size, for as long as the job runs."""
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
    """Shuffle a frame as its table wants it.

    Args:
        frame: The rows.
        target: The table.
        distribution: What the caller said; None: what the table says.

    Raises:
        InvalidArgumentError: If the table's property says something unknown.
    """
    mode = _mode(target, distribution)
    keys = partition_keys(frame, target)
    if mode == "range":
        order = [*keys, *_order(frame, target)]
        return Distributed(frame.repartitionByRange(*order) if order else frame)
    if mode == "none" or not keys:
        return Distributed(frame)
    # One number for each partition: Spark sorts such by their bits, several columns by comparing.
    # Two partitions that have the same number lie among each other, which writers can take.
    number = pyspark_module("pyspark.sql.functions").xxhash64(*keys)
    settings = ParquetSettings.of(target.properties, target.schema)
    together = frame.withColumn(_KEY, number).hint("rebalance", _KEY)
    return Distributed(
        together.sortWithinPartitions(_KEY).drop(_KEY),
        settings.target_file_bytes * _SHUFFLED_PER_STORED * _FILES_PER_TASK,
    )


def _mode(target: WriteTarget, distribution: Distribution | None) -> str:
    if distribution is not None:
        return distribution
    told = target.properties.get(_PROPERTY)
    if told is not None:
        if told.lower() not in get_args(Distribution):
            raise InvalidArgumentError(
                f"the table property {_PROPERTY} of {target.table} is {told!r}: set it to 'none', "
                "'hash' or 'range'"
            )
        return told.lower()
    if target.sort_order.fields:
        return "range"
    return "hash" if is_partitioned(target.spec) else "none"


def partition_keys(frame: DataFrame, target: WriteTarget) -> list[Column]:
    """What rows of the same partition have in common; nothing for a table without partitions."""
    found = (
        expression(target.schema, field.source_id, field.transform, frame.columns)
        for field in target.spec.fields
    )
    return [key for key in found if key is not None]


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
