"""The table that a load writes to, which may not exist yet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.catalogs import lookup as catalogs
from icestream.catalogs.failed_creation import local_catalog_undone, undo_namespace
from icestream.commit.new_table import NewTable
from icestream.commit.outcome.load_id import CommittedWrite, find_load
from icestream.errors import (
    CatalogError,
    CommitUnknownError,
    InvalidArgumentError,
    SchemaMismatchError,
)
from icestream.pipeline.request.load_spec import LoadSpec

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The target of a load.

    Attributes:
        catalog: The table's catalog.
        name: The table's name.
        table: The table; None if the load creates it. If the block of `open` then fails, it
            removes the namespace and the local catalog that it has created, if they are empty.
    """

    catalog: Catalog
    name: str
    table: Table | None
    new_namespaces: list[str] = field(default_factory=list, repr=False)

    @classmethod
    @contextmanager
    def open(cls, spec: LoadSpec, *, make: bool = True) -> Iterator[LoadTarget]:
        """Open the catalog and the table. A catalog that is opened here is closed afterwards.

        Args:
            spec: The load.
            make: Whether the local catalog may be created.

        Raises:
            CatalogError: If the catalog can't be reached, or the table does not exist and the load
                may not create it.
        """
        if isinstance(spec.into, Table):
            spec.into.refresh()
            yield cls(spec.into.catalog, spec.table_name, spec.into)
            return
        makes = spec.create and make
        is_open = isinstance(spec.catalog, Catalog)
        with ExitStack() as stack:
            if makes and not is_open:
                stack.enter_context(local_catalog_undone())
            catalog = open_load_catalog(spec.catalog, make=makes)
            if not is_open:
                stack.enter_context(closing(catalog))
            target = cls(catalog, spec.into, _find(catalog, spec))
            try:
                yield target
            except CommitUnknownError:
                raise
            except BaseException:
                if makes and target.table is None:
                    undo_namespace(catalog, target.name, created=bool(target.new_namespaces))
                raise

    def refreshed(self) -> LoadTarget:
        """The target with the table as it is now, which another load may have created."""
        if self.table is not None:
            self.table.refresh()
            return self
        if self.catalog.table_exists(self.name):
            return replace(self, table=self.catalog.load_table(self.name))
        return self

    @property
    def table_uuid(self) -> str | None:
        """The table's UUID; None if the table does not exist."""
        return None if self.table is None else str(self.table.metadata.table_uuid)

    def committed(self, spec: LoadSpec, load_id: str | None) -> CommittedWrite | None:
        """The committed write with a load id, on the branch of a load."""
        if self.table is None:
            return None
        return find_load(self.table.metadata, spec.branch or MAIN_BRANCH, load_id)

    def check_new(self, spec: LoadSpec) -> None:
        """Refuse options that a new table can't have.

        Raises:
            InvalidArgumentError: If a merge has no keys, or the load names a branch.
        """
        if spec.mode == "merge" and spec.keys is None:
            lack, remedy = "identifier fields", "give keys="
        elif spec.branch not in (None, MAIN_BRANCH):
            lack, remedy = f"branch {spec.branch!r}", "leave branch out"
        else:
            return
        raise InvalidArgumentError(f"{self.name} does not exist yet, so it has no {lack}: {remedy}")

    def new_table(self, spec: LoadSpec, stream: pa.Schema | None) -> NewTable:
        """Plan the new table of a load. This creates its namespace if it does not exist.

        Raises:
            SchemaMismatchError: If there are no columns, or Iceberg has no type for one.
            InvalidArgumentError: If partition_by or sort_by do not fit the columns, or
                `check_new` refuses the options.
        """
        self.check_new(spec)
        if stream is None:
            raise SchemaMismatchError(
                f"{self.name} can't be created: the sources have no columns",
                differences=("there is no column",),
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
        """Create the table's namespace if it does not exist."""
        namespace = self.name.rpartition(".")[0]
        try:
            self.catalog.create_namespace(namespace)
            self.new_namespaces.append(namespace)
        except NamespaceAlreadyExistsError:
            pass
        except Exception as error:
            # A user who may only create tables may still use an existing namespace.
            _logger.debug("namespace %s could not be created: %s", namespace, error)


def open_load_catalog(catalog: str | Catalog | None, *, make: bool) -> Catalog:
    """The catalog of a load.

    Args:
        catalog: A catalog, its name, or None for the default catalog.
        make: Whether to create the local catalog if it does not exist.
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
