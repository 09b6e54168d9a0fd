"""Finds the tables of a statement: `db.t`, `cat.db.t`, `db.t.snapshots`, `db.t.branch_audit`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from icestream.catalogs.lookup import (
    LOCAL_NAME,
    has_local_catalog,
    known_catalogs,
    load_table,
    open_catalog,
)
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.statements.metadata_tables import METADATA_TABLES
from icestream.spark.statements.words import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `SELECT * FROM parquet.`/data/x.parquet`` reads files.
_FILE_FORMATS = ("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml")
_SELECTOR = re.compile(r"(branch|tag|snapshot_id|at_timestamp)_(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table that a statement names.

    Attributes:
        table: The table, as it was when the statement started.
        metadata_table: The metadata table that the name ends with, such as `"snapshots"`.
        version: Arguments of a read, from a name that ends with a branch, tag, snapshot or time.
    """

    table: Table
    metadata_table: str | None = None
    version: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The table's name, for messages."""
        return ".".join(self.table.name())


class Names:
    """The tables that one statement names. A table is loaded once, so all reads see one state.

    Args:
        spark: The session, whose own tables and views come first.
        catalog: The catalog of names without a catalog.
    """

    def __init__(self, spark: SparkSession, catalog: str | Catalog | None) -> None:
        self._spark = spark
        self._given = catalog
        self._loaded: dict[tuple[str | None, str], Table | CatalogError] = {}

    def find(self, parts: Sequence[str]) -> NamedTable | None:
        """The Iceberg table of a name; None if the name belongs to Spark.

        Raises:
            CatalogError: If there is no such table.
        """
        if len(parts) < 2 or self.is_sparks(parts):
            return None
        catalog, identifier = self.place(parts)
        try:
            return NamedTable(self._load(catalog, identifier))
        except CatalogError as error:
            if not _is_missing(error) or len(identifier) < 3:
                raise
            last = identifier[-1]
            selector = _SELECTOR.fullmatch(last)
            if last.lower() not in METADATA_TABLES and selector is None:
                raise
            try:
                table = self._load(catalog, identifier[:-1])
            except CatalogError:
                raise error from None
            if selector is None:
                return NamedTable(table, last.lower())
            return NamedTable(table, version=_version(selector[1], selector[2]))

    def target(self, parts: Sequence[str]) -> tuple[Table, str | None]:
        """The table that a statement changes, and its branch.

        Raises:
            InvalidArgumentError: If the name belongs to Spark, or can't be written to.
            CatalogError: If there is no such table.
        """
        self.refuse_sparks(parts)
        entry = self.find(parts)
        assert entry is not None
        if entry.metadata_table is not None or set(entry.version) - {"branch"}:
            raise InvalidArgumentError(
                f"{'.'.join(parts)} can only be read: write to {entry.name} or to one of its "
                "branches"
            )
        return entry.table, entry.version.get("branch")

    def refuse_sparks(self, parts: Sequence[str]) -> None:
        """Refuse to change a table that is not an Iceberg table of a PyIceberg catalog."""
        if len(parts) < 2:
            raise InvalidArgumentError(
                f"{'.'.join(parts)!r} is not the name of an Iceberg table: include the namespace, "
                "as in 'db.t'"
            )
        if self.is_sparks(parts):
            raise InvalidArgumentError(
                f"{'.'.join(parts)} is a table or view of Spark: use spark.sql to change it"
            )

    def place(self, parts: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
        """The catalog of a name (None for the default one), and the table's name there.

        Raises:
            InvalidArgumentError: If a part has a dot, which catalogs take for a separator.
        """
        for part in parts:
            if "." in part:
                raise refused(f"the name `{part}`, which has a dot", "rename the table")
        if len(parts) > 2 and parts[0] in self._catalogs:
            return parts[0], tuple(parts[1:])
        return None, tuple(parts)

    def catalog(self, name: str | None) -> Catalog:
        """Open a catalog from `place`."""
        if name is None or (isinstance(self._given, Catalog) and self._given.name == name):
            return open_catalog(self._given)
        return open_catalog(name)

    def is_sparks(self, parts: Sequence[str]) -> bool:
        """Whether Spark itself knows a table or view of this name, or reads files by it."""
        if len(parts) == 2:
            space = parts[0].lower()
            if space == "global_temp" or (space in _FILE_FORMATS and "/" in parts[1]):
                return True
        quoted = ".".join(f"`{part.replace('`', '``')}`" for part in parts)
        try:
            return bool(self._spark.catalog.tableExists(quoted))
        except pyspark_module("pyspark.errors").PySparkException:
            return False  # Spark has no such catalog

    @cached_property
    def _catalogs(self) -> set[str]:
        names = known_catalogs()
        if isinstance(self._given, Catalog):
            names.add(self._given.name)
        if has_local_catalog():
            names.add(LOCAL_NAME)
        return names

    def _load(self, catalog: str | None, identifier: tuple[str, ...]) -> Table:
        key = catalog, ".".join(identifier)
        if key not in self._loaded:
            try:
                self._loaded[key] = load_table(key[1], self.catalog(catalog))
            except CatalogError as error:
                self._loaded[key] = error
        loaded = self._loaded[key]
        if isinstance(loaded, CatalogError):
            raise loaded
        return loaded


def _is_missing(error: CatalogError) -> bool:
    return isinstance(error.__cause__, (NoSuchTableError, NoSuchNamespaceError))


def _version(kind: str, value: str) -> dict[str, Any]:
    if kind in ("branch", "tag"):
        return {kind: value}
    if not value.isdigit():
        raise InvalidArgumentError(f"{kind}_{value} is not a name: give a number after {kind}_")
    return {"snapshot_id" if kind == "snapshot_id" else "as_of": int(value)}
