"""`overwrite`: replaces rows of a table with the rows of a DataFrame, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.report.write_report import WriteReport
from icestream.spark.writing.distribution import Distribution
from icestream.spark.writing.rewrite_job import RowWorkers
from icestream.spark.writing.table_write import FrameWriteOptions
from icestream.spark.writing.written_frame import Creation, frame_options, write_frame
from icestream.write.schema.schema_plan import SchemaMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def overwrite(
    frame: DataFrame,
    table: str | Table,
    *,
    where: str | BooleanExpression | None = None,
    partitions: Literal["dynamic"] | None = None,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
    create: bool = False,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    table_properties: Mapping[str, str] | None = None,
    distribution: Distribution | None = None,
) -> WriteReport:
    """Replace rows of a table with the rows of a DataFrame, as exactly one snapshot.

    Tasks write the new files, and they rewrite the files in which some rows remain. The frame may
    read the table itself.

    Args:
        frame: The new rows. An empty frame only removes rows.
        table: A name such as `"db.t"`, or a PyIceberg table. See `icestream.spark.append` for the
            arguments that are not listed here.
        where: Filter for the rows to replace. Rows for which it is null stay. By default the whole
            table is replaced.
        partitions: `"dynamic"` replaces the partitions present in the frame.

    Returns:
        A report of the write.

    Raises:
        CommitConflictError: If, since the call, another writer has added or deleted rows that
            affect this change. `icestream.spark.append` lists the other errors.

    Memory: each running task stays within `memory`, and so does this process.
    """
    memory_bytes, case_sensitive = frame_options(frame, memory)
    options = FrameWriteOptions(
        "overwrite",
        memory=memory_bytes,
        where=where,
        partitions=partitions,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
        case_sensitive=case_sensitive,
    )
    creation = Creation.of(create, partition_by, sort_by, table_properties)
    workers = RowWorkers(frame.sparkSession, memory_bytes)
    report = write_frame(
        frame,
        table,
        catalog,
        options,
        creation=creation,
        distribution=distribution,
        workers=workers,
    )
    return workers.completed(report)
