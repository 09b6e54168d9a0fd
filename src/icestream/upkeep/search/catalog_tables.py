"""Tables of the same catalog that write into a table's folders."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ServerError, ServiceUnavailableError
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Identifier

from icestream.errors import CatalogError
from icestream.redaction import error_text
from icestream.upkeep.path_keys import folder_key

# Files that a table began to write into other folders since then are too young to be orphans.
_BELIEVED_SECONDS = 600
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """Where a table of the catalog has its files.

    Attributes:
        name: Its name.
        table_uuid: Its id.
        folders: Its location, data and metadata folders, by key.
        seen_at: When it was loaded.
    """

    name: Identifier
    table_uuid: str
    folders: tuple[str, ...]
    seen_at: float


_seen: WeakKeyDictionary[Catalog, dict[Identifier, CatalogTable]] = WeakKeyDictionary()


class CatalogTables:
    """Looks at every table of a catalog, once in ten minutes.

    Memory: the metadata of one table at a time, and about 500 bytes for each table.

    Args:
        table: The table whose catalog it is.
    """

    def __init__(self, table: Table) -> None:
        self._catalog = table.catalog
        self._own_name = table.name()

    def all(self) -> Iterator[CatalogTable]:
        """Every other table that can be loaded.

        Raises:
            CatalogError: If the catalog does not answer.
        """
        seen = _seen.setdefault(self._catalog, {})
        for name in self._names():
            before = seen.get(name)
            if before is None or time.monotonic() - before.seen_at > _BELIEVED_SECONDS:
                loaded = self.load(name)
                if loaded is None:
                    seen.pop(name, None)
                    continue
                before = seen[name] = _described(name, loaded)
            yield before

    def load(self, name: Identifier) -> Table | None:
        """A table; None if it is gone, or can't be read by anybody here.

        Raises:
            CatalogError: If the catalog or the storage does not answer.
        """
        try:
            return self._catalog.load_table(name)
        except (NoSuchTableError, FileNotFoundError, PermissionError):
            return None
        except (OSError, ServerError, ServiceUnavailableError) as error:
            raise CatalogError(
                f"{'.'.join(name)} could not be loaded, so it is not known whether it has files in "
                f"this table's folders: {error_text(error, self._catalog.properties)}. Try again"
            ) from error
        except Exception as error:  # metadata that PyIceberg does not understand, no permission
            _log.debug("%s was not looked at: %s", name, type(error).__name__)
            return None

    def _names(self) -> Iterator[Identifier]:
        """The names of all other tables; none if the catalog does not tell."""
        waiting: list[Identifier] = [()]
        known: set[Identifier] = set()
        while waiting:
            namespace = waiting.pop()
            try:
                below = self._catalog.list_namespaces(namespace)
                names = self._catalog.list_tables(namespace) if namespace else []
            except (OSError, ServerError, ServiceUnavailableError) as error:
                raise CatalogError(
                    "the tables of the catalog could not be listed: "
                    f"{error_text(error, self._catalog.properties)}. Try again"
                ) from error
            except Exception as error:  # not every catalog can, and not everybody may
                _log.debug("%s was not listed: %s", namespace, type(error).__name__)
                continue
            fresh = [each for each in map(tuple, below) if each not in known]
            known.update(fresh)
            waiting.extend(fresh)
            yield from (name for name in map(tuple, names) if name != self._own_name)


def _described(name: Identifier, table: Table) -> CatalogTable:
    locations = load_location_provider(table.location(), table.metadata.properties)
    folders = (table.location(), locations.data_path, locations.metadata_path)
    keys = tuple(map(folder_key, folders))
    return CatalogTable(name, str(table.metadata.table_uuid), keys, time.monotonic())


def overlaps(folder: str, other: str) -> bool:
    """Whether one of two folders, by their keys, lies in the other."""
    first, second = f"{folder.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)
