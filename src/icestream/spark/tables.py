"""A table's name becomes the table, through PyIceberg's own configuration."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from icestream.errors import CatalogError, InvalidArgumentError
from icestream.spark.secrets import redact


def load_table(table: str | Table, catalog: str | Catalog | None) -> Table:
    """The table itself, or the one of that name.

    Args:
        table: A PyIceberg table, or a name such as `"db.t"`.
        catalog: A catalog, its name in PyIceberg's configuration, or None for the default one.

    Raises:
        CatalogError: If the catalog can't be reached, or has no such table.
        InvalidArgumentError: If the arguments are neither.
    """
    if isinstance(table, Table):
        if catalog is not None:
            raise InvalidArgumentError(
                f"{'.'.join(table.name())} is a loaded table, which has its catalog: leave "
                "catalog out"
            )
        return table
    if not isinstance(table, str):
        raise InvalidArgumentError(
            f"table is a {type(table).__name__}: give a name such as 'db.t', or a PyIceberg table"
        )
    if "" in table.split(".") or "." not in table:
        raise InvalidArgumentError(
            f"{table!r} names no table: write its namespace, too, as in 'db.t'"
        )
    opened = open_catalog(catalog)
    where = f"catalog {opened.name!r} ({_without_password(opened.properties.get('uri', 'no uri'))})"
    try:
        return opened.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise CatalogError(
            f"there is no table {table!r} in {where}: check the name, or pass catalog= the name of "
            "another catalog"
        ) from error
    except Exception as error:
        raise CatalogError(
            f"table {table!r} could not be loaded from {where}: {type(error).__name__}: "
            f"{redact(str(error), opened.properties)}. Check that the catalog can be reached from "
            "here"
        ) from error


def _without_password(uri: str) -> str:
    """The address alone: a database's often has a password in it."""
    before, separator, after = uri.partition("://")
    return f"{before}{separator}{after.partition('?')[0].rpartition('@')[2]}"


def open_catalog(
    catalog: str | Catalog | None, properties: Mapping[str, str] | None = None
) -> Catalog:
    """The catalog itself, or the one of that name.

    Args:
        catalog: A catalog, its name in PyIceberg's configuration, or None for the default one.
        properties: Further properties, over those of the configuration.

    Raises:
        CatalogError: If it can't be opened.
        InvalidArgumentError: If it is neither.
    """
    if isinstance(catalog, Catalog):
        return catalog
    if catalog is not None and not isinstance(catalog, str):
        raise InvalidArgumentError(
            f"catalog is a {type(catalog).__name__}: give its name in PyIceberg's configuration, "
            "or a PyIceberg catalog"
        )
    try:
        return load_catalog(catalog, **(properties or {}))
    except Exception as error:
        name = "the default catalog" if catalog is None else f"catalog {catalog!r}"
        variable = f"PYICEBERG_CATALOG__{(catalog or 'default').upper()}__URI"
        raise CatalogError(
            f"{name} could not be opened: {type(error).__name__}: "
            f"{redact(str(error), properties)}. Set it up in .pyiceberg.yaml or with {variable}, "
            "or pass catalog= one that is"
        ) from error
