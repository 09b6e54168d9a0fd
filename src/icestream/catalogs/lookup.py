"""Find catalogs and tables by name, through PyIceberg's configuration.

If no catalog is configured, the local catalog is used: a SQLite file and a warehouse in one folder
below the working directory. Only `make_local_catalog` creates it.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pyiceberg.catalog import Catalog, list_catalogs, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from icestream.catalogs._pyiceberg.timeouts import limit_waits, limited_catalog, timeout_text
from icestream.catalogs.configuration import broken_configuration
from icestream.catalogs.redaction import error_text, shown_cause, without_password
from icestream.errors import CatalogError, InvalidArgumentError

LOCAL_FOLDER = "icestream_warehouse"
LOCAL_NAME = "local"
_DATABASE = "catalog.db"
_NAMESPACES_SEARCHED = 20
_Opened = TypeVar("_Opened")


def load_table(table: str | Table, catalog: str | Catalog | None) -> Table:
    """Load a table by its name. A table that is already loaded is returned as it is.

    Args:
        table: A PyIceberg table, or a name such as `"db.t"`.
        catalog: A catalog, its name in PyIceberg's configuration, or None for the default one.

    Raises:
        CatalogError: If the catalog can't be reached, or has no such table.
        InvalidArgumentError: If an argument is of another type, or is not a table's name.
    """
    loaded = resolve_table(table, catalog)
    if not isinstance(loaded, Table):
        raise InvalidArgumentError(
            f"table is a {type(loaded).__name__}: give a name such as 'db.t', or a PyIceberg table"
        )
    limit_waits(loaded.catalog)
    return loaded


def resolve_table(table: str | _Opened, catalog: str | Catalog | None) -> Table | _Opened:
    """Load a table by its name. All functions that take a table use this.

    Args:
        table: A name such as `"db.t"`. Everything else, such as a table, a transaction or a scan,
            is returned as it is.
        catalog: A catalog, its name in PyIceberg's configuration, or None for the default one.

    Raises:
        CatalogError: If the catalog can't be reached, or has no such table.
        InvalidArgumentError: If the name is not valid, or `catalog` is given without a name.
    """
    if isinstance(table, str):
        return _load(table, catalog)
    if catalog is not None:
        shown = f"{'.'.join(table.name())} is" if isinstance(table, Table) else "table is"
        raise InvalidArgumentError(
            f"{shown} a {type(table).__name__}, which already has a catalog: leave catalog out, or "
            "give a name such as 'db.t'"
        )
    return table


def _load(table: str, catalog: str | Catalog | None) -> Table:
    if "" in table.split(".") or "." not in table:
        raise InvalidArgumentError(
            f"{table!r} is not a table name: include the namespace, as in "
            f"{_example(table, catalog)!r}"
        )
    # PyIceberg imports its file access when it loads a table. This does it without pandas.
    importlib.import_module("icestream.catalogs.arrow_io")
    opened = open_catalog(catalog)
    where = described(opened)
    try:
        return opened.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise CatalogError(
            f"there is no table {table!r} in {where}: {_hint(table, opened)}"
        ) from error
    except Exception as error:
        raise CatalogError(
            f"table {table!r} could not be loaded from {where}: "
            f"{_trouble(error, opened.properties)}. Check that the catalog can be reached from "
            "here"
        ) from shown_cause(error, opened.properties)


def _hint(table: str, catalog: Catalog) -> str:
    """What to do about a table that does not exist: a name that is close, if there is one."""
    near = _names_like(table, catalog)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return "check the name, or pass catalog= the name of another catalog"


def _example(table: str, catalog: str | Catalog | None) -> str:
    """The full name of the table that a name without a namespace probably means."""
    with suppress(Exception):
        near = _names_like(table, open_catalog(catalog)) if table.strip(".") else []
        if near:
            return near[0]
    return "db.t"


def _names_like(table: str, catalog: Catalog) -> list[str]:
    """Up to two tables of the catalog with similar names. Empty if it does not answer."""
    namespace, _, name = table.rpartition(".")
    names: dict[str, str] = {}
    with suppress(Exception):
        namespaces = sorted(map(".".join, catalog.list_namespaces()))
        if namespace in namespaces or "." in namespace:
            namespaces = [namespace]
        for each in namespaces[:_NAMESPACES_SEARCHED]:
            with suppress(NoSuchNamespaceError):
                tables = map(".".join, catalog.list_tables(each))
                names |= {(full if namespace else full.rpartition(".")[2]): full for full in tables}
    wanted = table if namespace else name
    return [names[near] for near in difflib.get_close_matches(wanted, names, n=2, cutoff=0.7)]


def open_catalog(
    catalog: str | Catalog | None, properties: Mapping[str, str] | None = None
) -> Catalog:
    """Open a catalog by its name. A catalog that is already open is returned as it is.

    Args:
        catalog: A catalog, its name in PyIceberg's configuration, or None for the default one. If
            nothing is configured, the default is the local catalog. `"local"` means the local
            catalog, unless the configuration has a catalog of that name.
        properties: Further properties, which override those of the configuration.

    Raises:
        CatalogError: If the catalog can't be opened.
        InvalidArgumentError: If `catalog` is of another type.
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
                f"{missing} is configured, and {local_folder()} does not exist: "
                "icestream.load(files, into='db.t') creates it, or configure a catalog in "
                f".pyiceberg.yaml or with {variable}, or change to the folder that contains "
                f"{LOCAL_FOLDER}"
            ) from error
        raise CatalogError(
            f"{name} could not be opened: {_trouble(error, given)}. Configure it in "
            f".pyiceberg.yaml or with {variable}, or pass another catalog{_known()}"
        ) from shown_cause(error, given)


def is_configured() -> bool:
    """Whether PyIceberg's configuration names any catalog."""
    return bool(known_catalogs())


def is_local(catalog: str | None) -> bool:
    """Whether a name means the local catalog, which may not exist yet."""
    if catalog is None:
        return not is_configured()
    return catalog == LOCAL_NAME and LOCAL_NAME not in known_catalogs()


def known_catalogs() -> set[str]:
    """The names of all catalogs in PyIceberg's configuration.

    Raises:
        CatalogError: If the configuration is not valid. The message names the file and the line.
    """
    try:
        return {*list_catalogs(), *Config().get_known_catalogs()}
    except Exception as error:
        raise CatalogError(
            broken_configuration() or f"PyIceberg's configuration is not valid: {error}"
        ) from error


def local_folder(parent: Path | None = None) -> Path:
    """The folder of the local catalog, below `parent` or the working directory."""
    return (parent or Path.cwd()).resolve() / LOCAL_FOLDER


def has_local_catalog(parent: Path | None = None) -> bool:
    """Whether the local catalog exists."""
    return local_database(parent).exists()


def local_database(parent: Path | None = None) -> Path:
    """The file of the local catalog."""
    return local_folder(parent) / _DATABASE


def make_local_catalog(parent: Path | None = None) -> Catalog:
    """Open the local catalog, and create it if it does not exist.

    Args:
        parent: The folder that contains it. The working directory by default.

    Raises:
        CatalogError: If it can't be created.
    """
    folder = local_folder(parent)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CatalogError(
            f"no catalog is configured, and none could be created in {folder}: {error}. Configure "
            "one in .pyiceberg.yaml, or change to a folder that is writable"
        ) from error
    return _open_local(folder)


def list_tables(catalog: Catalog) -> dict[str, list[str]]:
    """The names of a catalog's tables, by namespace. Includes nested namespaces.

    Raises:
        CatalogError: If the catalog does not answer.
    """
    tables: dict[str, list[str]] = {}
    try:
        left = sorted(catalog.list_namespaces())
        while left:
            namespace = left.pop(0)
            if ".".join(namespace) in tables:
                continue
            tables[".".join(namespace)] = sorted(map(".".join, catalog.list_tables(namespace)))
            left += catalog.list_namespaces(namespace)
    except Exception as error:
        raise CatalogError(
            f"the tables of {described(catalog)} could not be listed: "
            f"{_trouble(error, catalog.properties)}. Check that it can be reached from here"
        ) from shown_cause(error, catalog.properties)
    return dict(sorted(tables.items()))


def described(catalog: Catalog) -> str:
    """The catalog's name and address without passwords, for messages."""
    return f"catalog {catalog.name!r} ({without_password(catalog.properties.get('uri', 'no uri'))})"


def not_created(table: str, error: Exception, catalog: Catalog) -> CatalogError:
    """The error for a table that a catalog refuses to create."""
    parts = table.split(".")
    if len(parts) > 2 and "hierarchical namespaces are not supported" in str(error):
        return CatalogError(
            f"table {table!r} can't be created, because {described(catalog)} has no namespaces "
            f"inside namespaces. Give a name with one dot, such as {f'{parts[0]}.{parts[-1]}'!r}"
        )
    return CatalogError(f"table {table!r} can't be created: {_trouble(error, catalog.properties)}")


def _trouble(error: Exception, properties: Mapping[str, str]) -> str:
    """The message of a catalog's error, without secrets."""
    if "URI missing, please provide" in str(error):  # PyIceberg names options of its own program
        return "its configuration has no uri"
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
            f"If {_DATABASE} is damaged, restore a copy of it"
        ) from error


def _configured(catalog: str | None) -> dict[str, str]:
    """The properties of a catalog in PyIceberg's configuration."""
    try:
        config = Config()
        entry = config.get_catalog_config(catalog or config.get_default_catalog_name())
    except ValueError:  # Opening the catalog fails with the same error, and reports it.
        return {}
    return {key: str(value) for key, value in (entry or {}).items()}


def _known() -> str:
    names = sorted(list_catalogs())
    return f" ({', '.join(names)})" if names else ""
