"""The name of a stream: with the number of a micro-batch it makes the id of a load.

Spark runs a micro-batch again if it does not know whether it was written, with the same number and
the same rows. The number alone says nothing: every query begins at 0. So the user names the stream,
and never gives the name to another query.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from icestream.commit.load_id import LOAD_ID_KEY, batch_load_id, batch_of_load, check_load_id
from icestream.errors import InvalidArgumentError, StreamError

QUERY_ID_KEY = "icestream.query-id"
QUERY_ID_PROPERTY = "sql.streaming.queryId"  # Spark's, of a running query
_LARGEST_BATCH = 2**63 - 1


def check_stream_id(stream_id: str | None, *, how: str) -> str:
    """The id, if it can be one.

    Args:
        stream_id: What the user gave.
        how: How it is given, for the message.

    Raises:
        InvalidArgumentError: If it is missing or can't be stored.
    """
    if not isinstance(stream_id, str) or not stream_id.strip():
        raise InvalidArgumentError(
            f"name the stream, as in {how}: with the name, a micro-batch that Spark runs again "
            "after a crash is known and written once. Keep the name for as long as the checkpoint, "
            "and give it to no other query"
        )
    check_load_id(batch_load_id(stream_id, _LARGEST_BATCH))
    return stream_id


def refuse_other_query(
    metadata: TableMetadata, branch: str, stream_id: str, query_id: str | None, *, table: str
) -> None:
    """Refuse a name that another query has: its micro-batches would pass for those of this one.

    Args:
        metadata: Of the table.
        branch: The branch that is written to.
        stream_id: The stream's name.
        query_id: The query's own id, which Spark keeps in its checkpoint; None if not known.
        table: The table's name, for the message.

    Raises:
        StreamError: If the newest micro-batch of that name is of another query.
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
                f"{batch[1]} by query {other}, and this is query {query_id}. Give each query a "
                "name of its own; if this one is to take the other's place with a new checkpoint, "
                "a new name, too"
            )
        return
