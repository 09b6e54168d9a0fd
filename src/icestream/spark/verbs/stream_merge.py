"""`merge_batches`: merges each micro-batch of a stream into a table, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.catalogs.lookup import load_table
from icestream.commit.outcome.load_id import batch_load_id
from icestream.operations.merge.merge_options import (
    Isolation,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.spark.streaming.stream_id import (
    QUERY_ID_KEY,
    QUERY_ID_PROPERTY,
    check_stream_id,
    refuse_other_query,
)
from icestream.spark.verbs.merge_frame import merge
from icestream.write.schema.schema_plan import SchemaMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge_batches(
    table: str | Table,
    *,
    stream_id: str,
    catalog: str | Catalog | None = None,
    on: Sequence[str] | str | None = None,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    update_columns: Sequence[str] | None = None,
    delete_when: str | BooleanExpression | None = None,
    on_duplicate: OnDuplicate = "error",
    last_by: str | None = None,
    null_keys: NullKeys = "error",
    skip_unchanged: bool = True,
    write_mode: WriteMode | None = None,
    isolation: Isolation | None = None,
    memory: int | str | None = None,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Create a function for `foreachBatch` that merges each micro-batch as one snapshot.

    ```python
    merging = ice_spark.merge_batches("db.orders", on="id", stream_id="orders")
    changes.writeStream.foreachBatch(merging).option("checkpointLocation", place).start()
    ```

    A micro-batch that Spark repeats after a crash is not merged a second time. A micro-batch that
    is empty or changes nothing also creates a snapshot, which records the batch.

    Args:
        table: A name such as `"db.t"`, or a PyIceberg table. With Spark Connect the function runs
            on the server: use the names of the table and of a catalog that is configured there.
        stream_id: Name of the stream. Keep it as long as the checkpoint, and do not use it for
            another query. The name and the number of the micro-batch form the load id.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        on: Column or columns that form the key. See `icestream.spark.merge` for this argument and
            those that are not listed here.
        on_duplicate: What to do with several changes to one key in a micro-batch: by default an
            error. `"last"` with `last_by` keeps the last change.

    Raises:
        InvalidArgumentError: If `stream_id` is empty or can't be stored.
    """
    name = check_stream_id(stream_id, how='merge_batches(..., stream_id="orders")')

    def merge_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = _query_id(frame)
        loaded = load_table(table, catalog)
        metadata = loaded.refresh().metadata
        shown = ".".join(loaded.name())
        refuse_other_query(metadata, branch or MAIN_BRANCH, name, query_id, table=shown)
        of_query = {QUERY_ID_KEY: query_id} if query_id is not None else {}
        merge(
            frame,
            loaded,
            on=on,
            when_matched=when_matched,
            when_not_matched=when_not_matched,
            update_columns=update_columns,
            delete_when=delete_when,
            on_duplicate=on_duplicate,
            last_by=last_by,
            null_keys=null_keys,
            skip_unchanged=skip_unchanged,
            write_mode=write_mode,
            isolation=isolation,
            memory=memory,
            schema_mode=schema_mode,
            branch=branch,
            properties={**(properties or {}), **of_query},
            load_id=batch_load_id(name, batch_id),
        )

    return merge_batch


def _query_id(frame: DataFrame) -> str | None:
    """The id of the query that a micro-batch belongs to, which Spark Connect does not expose."""
    try:
        context = frame.sparkSession.sparkContext
    except Exception:  # PySpark raises its own error where Connect lacks a feature
        return None
    query_id: str | None = context.getLocalProperty(QUERY_ID_PROPERTY)
    return query_id
