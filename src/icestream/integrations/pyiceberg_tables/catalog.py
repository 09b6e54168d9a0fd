"""`load_catalog`: a PyIceberg catalog whose tables stream within a memory limit."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import CreateTableTransaction, Table
from pyiceberg.typedef import Identifier

from icestream.catalogs._pyiceberg.staging import table_of
from icestream.catalogs.lookup import open_catalog
from icestream.errors import InvalidArgumentError
from icestream.integrations.pyiceberg_tables.table import StreamingTable, streaming_table
from icestream.integrations.pyiceberg_tables.transaction import StreamingCreation
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget


def load_catalog(
    name: str | None = None,
    *,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    **properties: str,
) -> Catalog:
    """Open a PyIceberg catalog whose tables are those of `icestream.table`.

    Everything else is PyIceberg's: the catalog is an instance of a subclass of `SqlCatalog`,
    `RestCatalog`, or the class that the configuration names.

    Args:
        name: Its name in PyIceberg's configuration; the default catalog, if left out. If nothing
            is configured, the default is icestream's local catalog.
        memory: Memory limit of each scan and each write: a string such as `"256MB"`, a number of
            bytes, or a `MemoryBudget` that they share.
        properties: Properties of the catalog, which override those of the configuration.

    Raises:
        CatalogError: If the catalog can't be opened.
        InvalidArgumentError: If an argument is not valid.
    """
    as_budget(memory)
    if name is not None and not isinstance(name, str):
        raise InvalidArgumentError(
            f"name is a {type(name).__name__}: give the name of a catalog in PyIceberg's "
            "configuration"
        )
    return streaming_catalog(open_catalog(name, properties), memory)


def streaming_catalog(opened: Catalog, memory: int | str | MemoryBudget) -> Catalog:
    """The same catalog, with streaming tables. The other object stays as it is."""
    kind = _streaming(type(opened))
    catalog: Any = kind.__new__(kind)
    vars(catalog).update(vars(opened), memory=memory)
    assert isinstance(catalog, Catalog)
    return catalog


class _StreamingTables(Catalog):
    """The methods of a catalog that return tables."""

    memory: int | str | MemoryBudget

    def load_table(self, identifier: str | Identifier) -> Table:
        return self._streaming(super().load_table(identifier))  # type: ignore[safe-super]

    def create_table(self, *args: Any, **options: Any) -> Table:
        return self._streaming(super().create_table(*args, **options))  # type: ignore[safe-super]

    def create_table_if_not_exists(self, *args: Any, **options: Any) -> Table:
        return self._streaming(super().create_table_if_not_exists(*args, **options))

    def create_table_transaction(self, *args: Any, **options: Any) -> CreateTableTransaction:
        transaction = super().create_table_transaction(  # type: ignore[safe-super]
            *args, **options
        )
        return StreamingCreation(table_of(transaction), self.memory)

    def register_table(self, *args: Any, **options: Any) -> Table:
        return self._streaming(super().register_table(*args, **options))  # type: ignore[safe-super]

    def rename_table(self, *args: Any, **options: Any) -> Table:
        return self._streaming(super().rename_table(*args, **options))  # type: ignore[safe-super]

    def _streaming(self, loaded: Table) -> Table:
        if isinstance(loaded, StreamingTable):
            return loaded
        return streaming_table(loaded, self.memory)


@cache
def _streaming(kind: type[Catalog]) -> type[Catalog]:
    """A subclass of a catalog's class that returns streaming tables."""
    if issubclass(kind, _StreamingTables):
        return kind
    return type(kind.__name__, (_StreamingTables, kind), {"__module__": kind.__module__})
