"""The name of a stream. Together with the number of a micro-batch, it forms a load id.

Spark runs a micro-batch again, with the same number and the same rows, if it does not know whether
the batch was written. The number alone does not identify a batch, because every query starts at 0.
So the user names the stream, and does not use the name for another query.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from icestream.commit.outcome.load_id import (
    LOAD_ID_KEY,
    batch_load_id,
    batch_of_load,
    check_load_id,
)
from icestream.errors import InvalidArgumentError, StreamError

QUERY_ID_KEY = "icestream.query-id"
QUERY_ID_PROPERTY = "sql.streaming.queryId"  # set by Spark while a query runs
_LARGEST_BATCH = 2**63 - 1


def check_stream_id(stream_id: str | None, *, how: str) -> str:
    """The id, if it is valid.

    Args:
        stream_id: The user's value.
        how: How to give the id, for the message.

    Raises:
        InvalidArgumentError: If the id is missing or can't be stored.
    """
    if not isinstance(stream_id, str) or not stream_id.strip():
        raise InvalidArgumentError(
            f"name the stream, as in {how}: by the name, icestream recognizes a micro-batch that "
            "Spark runs again after a crash, and writes it only once. Keep the name as long as the "
            "checkpoint, and do not use it for another query"
        )
    check_load_id(batch_load_id(stream_id, _LARGEST_BATCH))
    return stream_id


def refuse_other_query(
    metadata: TableMetadata, branch: str, stream_id: str, query_id: str | None, *, table: str
) -> None:
    """Refuse a name that another query uses: their micro-batches would have the same ids.

    Args:
        metadata: The table's metadata.
        branch: The branch to write to.
        stream_id: The stream's name.
        query_id: The query's id, which Spark stores in the checkpoint; None if unknown.
        table: The table's name, for the message.

    Raises:
        StreamError: If another query has written the newest micro-batch with that name.
    """
    if query_id is None:
        return
    for snapshot in ancestors_of(metadata.snapshot_by_name(branch), metadata):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        batch = batch_of_load(summary.get(LOAD_ID_KEY, ""))
        if batch is None or batch[0] != stream_id:
            continue
        other = summary.get(QUERY_ID_KEY, query_id)
        if other != query_id:
            raise StreamError(
                f"stream-id {stream_id!r} belongs to another query: {table} has its batch "
                f"{batch[1]} by query {other}, and this is query {query_id}. Give each query "
                "its own name, also one that replaces another query with a new checkpoint"
            )
        return
