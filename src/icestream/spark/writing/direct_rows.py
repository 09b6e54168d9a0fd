"""Rows that tasks read themselves: see `icestream.spark.tasks.direct_write`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from icestream.catalogs.credentials import credentials_of, renew
from icestream.catalogs.redaction import error_text
from icestream.read.split import Split
from icestream.spark.arrow.frame_schema import arrow_schema, map_in_arrow
from icestream.spark.arrow.types import spark_schema
from icestream.spark.tasks.direct_write import (
    DirectMap,
    DirectWrite,
    RowsTask,
    SourcePart,
    SourceReader,
    encode_share,
)
from icestream.spark.tasks.shares import map_shares, shares_frame
from icestream.spark.tasks.shown_work import NamedTask
from icestream.spark.tasks.task_write import ANSWER_SCHEMA
from icestream.spark.writing.table_write import PlannedWrite
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DirectRows:
    """The rows of sources that tasks read themselves.

    Attributes:
        spark: A session, classic or Spark Connect.
        reader: Reads the parts of a share.
        shares: The parts that each task reads.
        on_read: Called in a task with the number and the row count of its share.
    """

    spark: SparkSession = field(repr=False)
    reader: SourceReader
    shares: Sequence[Sequence[SourcePart]] = field(repr=False)
    on_read: Callable[[int, int], None] | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return self.reader.schema

    @property
    def columns(self) -> StructType:
        """The columns of the rows in Spark.

        Raises:
            UnsupportedFeatureError: If Spark has no type for a column.
        """
        return spark_schema(self.reader.output, table="the sources")

    def assigned(self, target: WriteTarget | None, mode: SchemaMode) -> DirectRows:
        """The rows as they are: the writer fits them to the table."""
        return self

    def mapped(self, task: RowsTask, schema: StructType, memory_bytes: int) -> DataFrame:
        """A frame with what a task makes of the rows that it reads. Each task reads one share."""
        work = DirectMap(task, self.reader, arrow_schema(self.columns), memory_bytes, self.on_read)
        shares = [encode_share(parts) for parts in self.shares or ((),)]
        return map_shares(self.spark, shares, work, schema, name="icestream read")

    @contextmanager
    def answers(self, planned: PlannedWrite) -> Iterator[DataFrame | None]:
        """The job of a write. None if there is nothing to read."""
        if not self.shares:
            yield None
            return
        frame = shares_frame(self.spark, [encode_share(parts) for parts in self.shares])
        work = DirectWrite(planned.task, self.reader, self.on_read)
        yield map_in_arrow(frame, NamedTask(work, f"icestream {planned.what}"), ANSWER_SCHEMA)

    def renew(self) -> None:
        """Get new credentials for tables among the sources. The next job sends them to its tasks.

        If a catalog does not answer, the next job fails with the old ones.
        """
        pieces = (part.piece for parts in self.shares for part in parts)
        accesses = {id(p.context.io): p.context.io for p in pieces if isinstance(p, Split)}
        for io in accesses.values():
            try:
                renew(io, credentials_of(io))
            except Exception as error:
                _log.warning("credentials could not be renewed: %s", error_text(error))
