"""`overwrite`: rows of a stream take the place of others, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.commit.landing import landing_of
from icestream.commit.load import Load, Removal
from icestream.commit.removal import (
    EverythingRemoved,
    MatchingRemoved,
    WrittenPartitionsRemoved,
    is_partitioned,
)
from icestream.errors import InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget
from icestream.report import WriteReport
from icestream.write.schema import SchemaMode


def overwrite(
    table: Table | Transaction,
    source: object,
    *,
    where: str | BooleanExpression | None = None,
    partitions: Literal["dynamic"] | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Replace rows of a table by those of a stream, as exactly one snapshot.

    Args:
        table: A PyIceberg table; or an open transaction, in which the overwrite is staged.
        source: Any Arrow stream, as of `append`.
        where: Replace the rows for which this filter is true; where it is null they stay. Without
            it everything is replaced.
        partitions: `"dynamic"` replaces the partitions that the stream has rows for.
        memory: The most bytes held; half of it for reading where files are partly rewritten.
        schema_mode: As of `append`; likewise branch, properties and load_id.

    Returns:
        What happened.

    Raises:
        CommitConflictError: If rows were added or deleted meanwhile that this change would have had
            to see. Other errors as of `append`.
    """
    load = Load(
        table,
        Operation.OVERWRITE,
        removal_of(table, where, partitions),
        memory=memory,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    return load.run(source)


def removal_of(
    table: Table | Transaction,
    where: str | BooleanExpression | None,
    partitions: Literal["dynamic"] | None,
) -> Removal:
    """What an overwrite removes, by what its caller gave.

    Raises:
        InvalidArgumentError: If that says nothing, or two things.
    """
    if partitions not in (None, "dynamic"):
        raise InvalidArgumentError(f"partitions is {partitions!r}: give 'dynamic' or leave it out")
    if where is not None and partitions is not None:
        raise InvalidArgumentError(
            "where and partitions both say what to replace: give one of them"
        )
    if partitions is not None:
        landing = landing_of(table)
        if not is_partitioned(landing.refresh().spec()):
            raise InvalidArgumentError(
                f"{landing.name} is not partitioned: leave partitions='dynamic' out to replace "
                "the whole table, or give where="
            )
        return WrittenPartitionsRemoved()
    return EverythingRemoved() if where is None else MatchingRemoved(where)
