"""The table that a load goes into: there, or still to be created."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from icestream import catalogs
from icestream.commit.new_table import NewTable
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.pipeline.load_spec import LoadSpec

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where a load goes.

    Attributes:
        catalog: The table's catalog.
        name: The table's name.
        table: The table; None if the load is to create it.
    """

    catalog: Catalog
    name: str
    table: Table | None

    @classmethod
    @contextmanager
    def open(cls, spec: LoadSpec, *, make: bool = True) -> Iterator[LoadTarget]:
        """Open the catalog, and the table if it is there; what was opened here is closed again.

        Args:
            spec: The load.
            make: Whether the local catalog may be made.

        Raises:
            CatalogError: If the catalog can't be reached; or the table is not there, and the load
                is not to create it.
        """
        if isinstance(spec.into, Table):
            spec.into.refresh()
            yield cls(spec.into.catalog, spec.table_name, spec.into)
            return
        catalog = open_load_catalog(spec.catalog, make=spec.create and make)
        try:
            yield cls(catalog, spec.into, _find(catalog, spec))
        finally:
            if catalog is not spec.catalog:
                catalog.close()

    def new_table(self, spec: LoadSpec, stream: pa.Schema) -> NewTable:
        """The table as the load is to create it; its namespace is created if it is not there.

        Raises:
            SchemaMismatchError: If Iceberg has no type for a column.
            InvalidArgumentError: If partition_by or sort_by do not fit the columns; or the load
                goes to a branch, which a new table does not have.
        """
        if spec.branch not in (None, "main"):
            raise InvalidArgumentError(
                f"{self.name} is not there yet and has no branch {spec.branch!r}: leave branch out"
            )
        self.make_namespace()
        return NewTable.plan(
            self.catalog,
            self.name,
            stream,
            partition_by=spec.partition_by,
            sort_by=spec.sort_by,
            properties=spec.table_properties,
        )

    def make_namespace(self) -> None:
        """Create the table's namespace unless it is there."""
        namespace = self.name.rpartition(".")[0]
        try:
            self.catalog.create_namespace_if_not_exists(namespace)
        except Exception as error:
            # One that may only create tables may still be allowed to use what is there.
            _logger.debug("namespace %s could not be created: %s", namespace, error)


def open_load_catalog(catalog: str | Catalog | None, *, make: bool) -> Catalog:
    """The catalog of a load.

    Args:
        catalog: As of `icestream.catalogs.open_catalog`.
        make: Whether the local catalog is made, where it is meant and not there.
    """
    if not isinstance(catalog, Catalog) and catalogs.is_local(catalog) and make:
        return catalogs.make_local_catalog()
    return catalogs.open_catalog(catalog)


def _find(catalog: Catalog, spec: LoadSpec) -> Table | None:
    try:
        return catalogs.load_table(spec.into, catalog)
    except CatalogError as error:
        missing = isinstance(error.__cause__, (NoSuchTableError, NoSuchNamespaceError))
        if not spec.create or not missing:
            raise
        return None
