"""A table's name becomes the table, through PyIceberg's own configuration.

Where nothing is configured at all, there is the local catalog: a SQLite file and a warehouse in
one folder below the working directory. It is used if it is there; only `make_local_catalog` makes
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyiceberg.catalog import Catalog, list_catalogs, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from icestream._pyiceberg import limit_waits, limited_catalog, timeout_text
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.redaction import error_text, shown_cause, without_password

LOCAL_FOLDER = "icestream_warehouse"
LOCAL_NAME = "local"
_DATABASE = "catalog.db"


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
        limit_waits(table.catalog)
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
    where = described(opened)
    try:
        return opened.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise CatalogError(
            f"there is no table {table!r} in {where}: check the name, or pass catalog= the name of "
            "another catalog"
        ) from error
    except Exception as error:
        raise CatalogError(
            f"table {table!r} could not be loaded from {where}: "
            f"{_trouble(error, opened.properties)}. Check that the catalog can be reached from "
            "here"
        ) from shown_cause(error, opened.properties)


def open_catalog(
    catalog: str | Catalog | None, properties: Mapping[str, str] | None = None
) -> Catalog:
    """The catalog itself, or the one of that name.

    Args:
        catalog: A catalog, its name in PyIceberg's configuration, or None for the default one:
            the local catalog, if nothing is configured and there is one. `"local"` is the local
            catalog, too, unless the configuration has one of that name.
        properties: Further properties, over those of the configuration.

    Raises:
        CatalogError: If it can't be opened.
        InvalidArgumentError: If it is neither.
    """
    if isinstance(catalog, Catalog):
        limit_waits(catalog)
        return catalog
    if catalog is not None and not isinstance(catalog, str):
        raise InvalidArgumentError(
            f"catalog is a {type(catalog).__name__}: give its name in PyIceberg's configuration, "
            "or a PyIceberg catalog"
        )
    if not properties and is_local(catalog) and has_local_catalog():
        return _open_local(local_folder())
    given = {**_configured(catalog), **(properties or {})}
    try:
        with limited_catalog(given):
            opened = load_catalog(catalog, **(properties or {}))
        limit_waits(opened)
        return opened
    except InvalidArgumentError:
        raise
    except Exception as error:
        name = "the default catalog" if catalog is None else f"catalog {catalog!r}"
        variable = f"PYICEBERG_CATALOG__{(catalog or 'default').upper()}__URI"
        if is_local(catalog):
            missing = "no catalog" if catalog is None else f"no catalog {catalog!r}"
            raise CatalogError(
                f"{missing} is configured, and {local_folder()} is not there: set one up in "
                f".pyiceberg.yaml or with {variable}, or work in the folder that has it"
            ) from error
        raise CatalogError(
            f"{name} could not be opened: {_trouble(error, given)}. Set it up in .pyiceberg.yaml "
            f"or with {variable}, or pass catalog= one that is{_known()}"
        ) from shown_cause(error, given)


def is_configured() -> bool:
    """Whether PyIceberg's configuration names any catalog."""
    return bool(list_catalogs() or Config().get_known_catalogs())


def is_local(catalog: str | None) -> bool:
    """Whether a name means the local catalog, be it there or not."""
    if catalog is None:
        return not is_configured()
    known = {*list_catalogs(), *Config().get_known_catalogs()}
    return catalog == LOCAL_NAME and LOCAL_NAME not in known


def local_folder(parent: Path | None = None) -> Path:
    """Where the local catalog is, or would be: below the working directory unless told."""
    return (parent or Path.cwd()).resolve() / LOCAL_FOLDER


def has_local_catalog(parent: Path | None = None) -> bool:
    """Whether the local catalog is there."""
    return (local_folder(parent) / _DATABASE).exists()


def make_local_catalog(parent: Path | None = None) -> Catalog:
    """The local catalog, which is made if it is not there.

    Args:
        parent: The folder in which its own is; the working directory by default.

    Raises:
        CatalogError: If it can't be made.
    """
    folder = local_folder(parent)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CatalogError(
            f"no catalog is configured, and none could be made in {folder}: {error}. Set one up in "
            ".pyiceberg.yaml, or work in a folder that can be written to"
        ) from error
    return _open_local(folder)


def list_tables(catalog: Catalog) -> dict[str, list[str]]:
    """The names of a catalog's tables, by namespace, nested ones among them.

    Raises:
        CatalogError: If the catalog can't be asked.
    """
    found: dict[str, list[str]] = {}
    try:
        left = sorted(catalog.list_namespaces())
        while left:
            namespace = left.pop(0)
            if ".".join(namespace) in found:
                continue
            found[".".join(namespace)] = sorted(map(".".join, catalog.list_tables(namespace)))
            left += catalog.list_namespaces(namespace)
    except Exception as error:
        raise CatalogError(
            f"the tables of {described(catalog)} could not be listed: "
            f"{_trouble(error, catalog.properties)}. Check that it can be reached from here"
        ) from shown_cause(error, catalog.properties)
    return dict(sorted(found.items()))


def described(catalog: Catalog) -> str:
    """The catalog's name and address, for messages."""
    return f"catalog {catalog.name!r} ({without_password(catalog.properties.get('uri', 'no uri'))})"


def _trouble(error: Exception, properties: Mapping[str, str]) -> str:
    """What went wrong with a catalog, without secrets."""
    return timeout_text(error, properties) or error_text(error, properties)


def _open_local(folder: Path) -> Catalog:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder / _DATABASE}",
        "warehouse": folder.as_uri(),
    }
    try:
        return load_catalog(LOCAL_NAME, **properties)
    except Exception as error:
        raise CatalogError(
            f"the local catalog in {folder} could not be opened: {type(error).__name__}: {error}. "
            f"If {_DATABASE} is damaged, put a copy of it back"
        ) from error


def _configured(catalog: str | None) -> dict[str, str]:
    """What PyIceberg's configuration says of a catalog."""
    try:
        config = Config()
        found = config.get_catalog_config(catalog or config.get_default_catalog_name())
    except ValueError:  # which is why it could not be opened
        return {}
    return {key: str(value) for key, value in (found or {}).items()}


def _known() -> str:
    names = sorted(list_catalogs())
    return f" ({', '.join(names)})" if names else ""
