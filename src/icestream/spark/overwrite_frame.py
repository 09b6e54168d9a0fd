"""`overwrite`: rows of a DataFrame take the place of others, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.report import WriteReport
from icestream.spark.distribution import Distribution
from icestream.spark.table_write import WriteOptions
from icestream.spark.written_frame import Creation, frame_options, write_frame
from icestream.write.schema import SchemaMode

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
    """Replace rows of a table by those of a DataFrame, as exactly one snapshot.

    Tasks write the new files. What goes is worked out in this process, where files that lose only
    some of their rows are written again; the frame may well read the table itself.

    Args:
        frame: The rows. An empty one takes out what it would have replaced.
        table: As of `append`; likewise catalog, memory, schema_mode, branch, properties, load_id,
            create, partition_by, sort_by, table_properties and distribution.
        where: Replace the rows for which this filter is true; where it is null they stay. Without
            it everything is replaced.
        partitions: `"dynamic"` replaces the partitions that the frame has rows for.

    Returns:
        What happened.

    Raises:
        CommitConflictError: If rows were added or deleted since the call that this change would
            have had to see. Other errors as of `append`.

    Memory: each running task stays within `memory`, and so does this process.
    """
    memory_bytes, case_sensitive = frame_options(frame, memory)
    options = WriteOptions(
        "overwrite",
        memory_bytes,
        where=where,
        partitions=partitions,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
        case_sensitive=case_sensitive,
    )
    creation = Creation.of(create, partition_by, sort_by, table_properties)
    return write_frame(frame, table, catalog, options, creation=creation, distribution=distribution)
