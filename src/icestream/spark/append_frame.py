"""`append`: rows of a DataFrame become one snapshot on top of what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.report import WriteReport
from icestream.spark.distribution import Distribution
from icestream.spark.table_write import WriteOptions
from icestream.spark.written_frame import Creation, frame_options, write_frame
from icestream.write.schema import SchemaMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(
    frame: DataFrame,
    table: str | Table,
    *,
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
    """Append a DataFrame to a table, as exactly one snapshot.

    The executors' Python workers write the data files; their descriptions come back, and the
    commit happens in this process.

    Args:
        frame: The rows.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default one.
        memory: What each task may hold; what `icestream.spark.session` was given by default.
        schema_mode: As in `icestream.append`; likewise branch, properties and load_id.
        create: Whether to create the table if it is not there, from the frame's columns and in the
            same commit: a load that fails leaves no table. If somebody else creates it meanwhile,
            the frame is computed again and appended to theirs.
        partition_by: Of a table that is created: `["day(ts)", "bucket(16, id)", "region"]`.
        sort_by: Likewise: `["price desc nulls last"]`.
        table_properties: Likewise.
        distribution: How rows are brought together before they are written: `"none"`, `"hash"`
            (by partition) or `"range"`; by default as the table says, see
            `icestream.spark.distribution`.

    Returns:
        What happened. `peak_bytes_held` is that of the task which held most.

    Raises:
        SchemaMismatchError: If the frame does not fit the table; nothing was written.
        UnsupportedFeatureError: If Iceberg has no type for a column; nothing was written.
        CatalogError: If the catalog can't be reached, or has no such table.
        TaskFailedError: If tasks failed for good. Where icestream itself refused a row, its own
            error comes instead, such as `InvalidDataError`. The table is as it was.
        CommitConflictError: If the commit was refused.

    Memory: each running task stays within `memory`, beside Python and Spark themselves.
    """
    memory_bytes, case_sensitive = frame_options(frame, memory)
    options = WriteOptions(
        "append",
        memory_bytes,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
        case_sensitive=case_sensitive,
    )
    creation = Creation.of(create, partition_by, sort_by, table_properties)
    return write_frame(frame, table, catalog, options, creation=creation, distribution=distribution)
