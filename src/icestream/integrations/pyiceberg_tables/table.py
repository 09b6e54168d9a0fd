"""`table`: a PyIceberg table whose reads and writes stream within a memory limit."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import EMPTY_DICT, Properties

from icestream.catalogs.lookup import load_table
from icestream.errors import InvalidArgumentError
from icestream.integrations.pyiceberg_tables.scan import StreamingIncrementalScan, StreamingScan
from icestream.integrations.pyiceberg_tables.transaction import StreamingTransaction
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget

_ALL_ROWS = AlwaysTrue()


def table(
    t: Table | str,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
) -> StreamingTable:
    """A PyIceberg `Table` whose scans and writes go through icestream.

    It has all methods of PyIceberg's class, with the same arguments and results. Its scans also
    take `batch_size` and `order`, and its writes take any Arrow stream.

    Args:
        t: A PyIceberg table, which stays as it is, or a name such as `"db.t"`.
        catalog: For a name: a catalog, its name in PyIceberg's configuration, or None for the
            default one.
        memory: Memory limit of each scan and each write: a string such as `"256MB"`, a number of
            bytes, or a `MemoryBudget` that they share.

    Raises:
        CatalogError: If the catalog can't be reached, or has no such table.
        InvalidArgumentError: If an argument is not valid.
    """
    as_budget(memory)
    return streaming_table(load_table(t, catalog), memory)


def streaming_table(loaded: Table, memory: int | str | MemoryBudget) -> StreamingTable:
    """A table with the state of another one.

    Raises:
        InvalidArgumentError: If the table does not exist yet.
    """
    if isinstance(loaded, StagedTable):
        raise InvalidArgumentError(
            f"{'.'.join(loaded.name())} is not created yet: commit its transaction first"
        )
    return StreamingTable(
        loaded.name(),
        loaded.metadata,
        loaded.metadata_location,
        loaded.io,
        loaded.catalog,
        loaded.config,
        memory=memory,
    )


class StreamingTable(Table):
    """A PyIceberg table. icestream reads and writes its rows.

    PyIceberg's write methods each run in a transaction of this table. So a delete or an overwrite
    is refused if other commits since the table was loaded changed the same rows.

    Attributes:
        memory: The memory limit of each scan and each write.
    """

    def __init__(
        self, *args: Any, memory: int | str | MemoryBudget = DEFAULT_MEMORY, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.memory = memory

    def scan(
        self,
        row_filter: str | BooleanExpression = _ALL_ROWS,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
        batch_size: int | None = None,
    ) -> StreamingScan:
        """Read the table.

        Args:
            row_filter: Row filter, as a string or a PyIceberg expression.
            selected_fields: The columns to return, in the order of the table.
            case_sensitive: Whether column names are case-sensitive.
            snapshot_id: The snapshot to read; the current one by default.
            options: PyIceberg's options of a scan.
            limit: Maximum number of rows to return.
            batch_size: Maximum number of rows in a batch; 131,072 by default.
        """
        return StreamingScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            case_sensitive=case_sensitive,
            snapshot_id=snapshot_id,
            options=options,
            limit=limit,
            catalog=self.catalog,
            table_identifier=self.name(),
            memory=self.memory,
            batch_size=batch_size,
        )

    def incremental_append_scan(
        self,
        *,
        from_snapshot_id_exclusive: int | None = None,
        to_snapshot_id_inclusive: int | None = None,
        row_filter: str | BooleanExpression = _ALL_ROWS,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
        batch_size: int | None = None,
    ) -> StreamingIncrementalScan:
        """Read the rows that were appended between two snapshots.

        Args:
            from_snapshot_id_exclusive: The snapshot before the first one to read.
            to_snapshot_id_inclusive: The last snapshot to read; the current one by default.
            row_filter: Row filter, as a string or a PyIceberg expression.
            selected_fields: The columns to return, in the order of the table.
            case_sensitive: Whether column names are case-sensitive.
            options: PyIceberg's options of a scan.
            limit: Maximum number of rows to return.
            batch_size: Maximum number of rows in a batch; 131,072 by default.
        """
        return StreamingIncrementalScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            case_sensitive=case_sensitive,
            from_snapshot_id=from_snapshot_id_exclusive,
            to_snapshot_id=to_snapshot_id_inclusive,
            options=options,
            limit=limit,
            memory=self.memory,
            batch_size=batch_size,
        )

    def transaction(self) -> StreamingTransaction:
        """Stage several changes, and commit them together. The writes make one snapshot."""
        return StreamingTransaction(self, self.memory)
