"""The other tables of a catalog, with their folders."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Identifier

from icestream.catalogs._pyiceberg.timeouts import timeout_text
from icestream.catalogs.redaction import error_text, shown_cause
from icestream.commit.outcome.retry import run_again
from icestream.errors import CatalogError
from icestream.operations.upkeep.path_keys import folder_key

# If a table changed its folders since it was loaded, its files there are too young to be orphans.
_BELIEVED_SECONDS = 600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table of the catalog, with its folders.

    Attributes:
        name: The name of the table.
        table_uuid: The id of the table.
        folders: The keys of its location, data folder and metadata folder.
        seen_at: When the table was loaded.
    """

    name: Identifier
    table_uuid: str
    folders: tuple[str, ...]
    seen_at: float


_seen: WeakKeyDictionary[Catalog, dict[Identifier, CatalogTable]] = WeakKeyDictionary()


class CatalogTables:
    """Loads every table of a catalog, at most once in ten minutes.

    Memory: the metadata of one table at a time, and about 500 bytes for each table.

    Args:
        table: A table of the catalog.
    """

    def __init__(self, table: Table) -> None:
        self._catalog = table.catalog
        self._own_name = table.name()

    def all(self) -> Iterator[CatalogTable]:
        """Every other table of the catalog.

        Raises:
            CatalogError: If tables can't be listed, or one can't be loaded.
        """
        seen = _seen.setdefault(self._catalog, {})
        for name in self.names():
            before = seen.get(name)
            if before is None or time.monotonic() - before.seen_at > _BELIEVED_SECONDS:
                loaded = self.load(name)
                if loaded is None:
                    seen.pop(name, None)
                    continue
                before = seen[name] = _described(name, loaded)
            yield before

    def load(self, name: Identifier) -> Table | None:
        """A table; None if it was dropped since it was listed, or is not an Iceberg table.

        Raises:
            CatalogError: If it can't be loaded for any other reason.
        """
        what = f"{'.'.join(name)} could not be loaded"
        try:
            # The table may have been purged after the catalog had answered.
            return run_again(lambda: self._catalog.load_table(name), on=(FileNotFoundError,))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as error:
            remedy = "Restore its metadata file, or drop it from the catalog"
            raise self._unknown(what, error, remedy) from self._shown(error)
        except Exception as error:
            remedy = "Try again, with the permission to load every table of the catalog"
            raise self._unknown(what, error, remedy) from self._shown(error)

    def names(self) -> Iterator[Identifier]:
        """The names of all other tables; none if the catalog can't list them."""
        waiting: list[Identifier] = [()]
        known: set[Identifier] = set()
        while waiting:
            namespace = waiting.pop()
            where = f"in {'.'.join(namespace)}" if namespace else "of the catalog"
            below = self._listed(f"namespaces {where}", self._catalog.list_namespaces, namespace)
            fresh = [each for each in below if each not in known]
            known.update(fresh)
            waiting.extend(fresh)
            if namespace:
                names = self._listed(f"tables {where}", self._catalog.list_tables, namespace)
                yield from (name for name in names if name != self._own_name)

    def _listed(
        self,
        what: str,
        names_in: Callable[[Identifier], Iterable[Identifier]],
        namespace: Identifier,
    ) -> list[Identifier]:
        """The names that the catalog lists; none if it can't list, or the namespace is gone.

        Catalogs without nested namespaces raise `NoSuchNamespaceError` if asked for nested ones.

        Raises:
            CatalogError: If the list fails for any other reason.
        """
        try:
            return [tuple(name) for name in names_in(namespace)]
        except NotImplementedError as error:
            _log.debug("the catalog does not list the %s: %s", what, error)
            return []
        except Exception as error:
            if isinstance(error, NoSuchNamespaceError) and namespace:
                return []
            remedy = "Try again, with the permission to list all namespaces and tables"
            raise self._unknown(f"the {what} could not be listed", error, remedy) from (
                self._shown(error)
            )

    def _unknown(self, what: str, error: Exception, remedy: str) -> CatalogError:
        properties = self._catalog.properties
        return CatalogError(
            f"{what}: {timeout_text(error, properties) or error_text(error, properties)}. Other "
            "tables may have files in this table's folders, so no file was reported as an orphan. "
            f"{remedy}"
        )

    def _shown(self, error: Exception) -> BaseException | None:
        return shown_cause(error, self._catalog.properties)


def _described(name: Identifier, table: Table) -> CatalogTable:
    locations = load_location_provider(table.location(), table.metadata.properties)
    folders = (table.location(), locations.data_path, locations.metadata_path)
    keys = tuple(map(folder_key, folders))
    return CatalogTable(name, str(table.metadata.table_uuid), keys, time.monotonic())


def lies_in(folder: str, other: str) -> bool:
    """Whether a folder is the same as another one or inside it; both are given by their keys."""
    return f"{folder.rstrip('/')}/".startswith(f"{other.rstrip('/')}/")


def overlaps(folder: str, other: str) -> bool:
    """Whether two folders are the same, or one is inside the other."""
    return lies_in(folder, other) or lies_in(other, folder)
