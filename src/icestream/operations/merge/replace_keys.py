"""`replace_keys`: replace all rows of some keys with those of a stream."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.operations.merge.merge import LocalMerge
from icestream.operations.merge.merge_options import MergeOptions
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.operations.write_parts import AppliedChanges, Base
from icestream.report.write_report import WriteReport
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.sources.arrow_source import open_source
from icestream.write.table_writer import TableWriter


def replace_keys(
    table: Table,
    source: object,
    *,
    keys: object,
    on: Sequence[str],
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    load_id: str | None = None,
) -> WriteReport:
    """Delete all rows with some keys, and add the rows of a stream, as exactly one snapshot.

    Unlike in a merge, a key may have many rows in the table and in the stream, and the stream may
    lack rows for a key.

    Args:
        table: A PyIceberg table.
        source: Any Arrow stream, or a callable that opens one, see `append`.
        keys: An Arrow stream with the columns of the key, and no others.
        on: The columns of the key.
        memory: Maximum number of bytes held, see `merge`.
        schema_mode: What to do if the stream's columns differ from the table's, see `append`.
        load_id: Identifies this write: a second call with the same id does nothing.

    Returns:
        A report.

    Memory: as `merge`.
    """
    options = WriteOptions(memory=memory, schema_mode=schema_mode, load_id=load_id)
    return WriteOperation(table, Operation.OVERWRITE, _KeysRemoved(keys, on), options).run(source)


class _KeysRemoved:
    """Removes all rows with some keys."""

    shares = 3

    def __init__(self, keys: object, on: Sequence[str]) -> None:
        self._keys = keys
        self._options = MergeOptions(
            on=on, when_matched="delete", when_not_matched="ignore", on_duplicate="last"
        )

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Rewrite the files that have such rows, or delete the rows by position."""
        work = LocalMerge(self._options)
        with open_source(self._keys) as keys:
            work.take(keys, base, writer)
        return work.apply(base, writer)
