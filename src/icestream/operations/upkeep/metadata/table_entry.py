"""Drop and rename tables in their catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table

from icestream.catalogs._pyiceberg.timeouts import timeout_text
from icestream.catalogs.redaction import error_text, shown_cause
from icestream.commit.landing import TableLanding
from icestream.errors import CatalogError, CommitConflictError, InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.operations.upkeep.metadata.purge import Purge


@dataclass(frozen=True, slots=True)
class DropReport:
    """A table that was dropped, or would be.

    Attributes:
        table: The table.
        uuid: Its id.
        location: Its folder.
        metadata_location: Its metadata file. A catalog can register the table with it again, unless
            it was purged.
        purge: Whether files are deleted.
        files: Files in the table's folders that it refers to; 0 without a purge.
        bytes: Their size.
        files_deleted: Number of deleted files.
        bytes_deleted: Their size.
        not_deleted: Paths of up to 10,000 files that could not be deleted.
        files_left: Other files in the folders, which the table does not refer to. They stay.
    """

    table: str
    uuid: str
    location: str
    metadata_location: str
    purge: bool = False
    files: int = 0
    bytes: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0
    not_deleted: tuple[str, ...] = ()
    files_left: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


def drop_table(
    table: Table,
    *,
    purge: bool = False,
    dropped: Collection[str] = (),
    only_catalog: bool = False,
    dry_run: bool = False,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
) -> DropReport:
    """Drop a table from its catalog. Its files stay, unless they are purged.

    A purge deletes the files that the table refers to and that are in its folders. It stops before
    anything is dropped if it is not sure that no other table needs them: see `Purge`.

    Args:
        table: The table.
        purge: Whether to delete its files, too.
        dropped: Ids (UUIDs) of other tables that are dropped: see `orphans`.
        only_catalog: Whether no other catalog has this table: see `orphans`.
        dry_run: Whether to check and report what would be deleted, and change nothing.
        memory: Maximum number of bytes held.

    Raises:
        CatalogError: If another table may need the files, or the catalog can't drop the table.
        CommitConflictError: If the table changed while its files were looked up.
    """
    metadata = TableLanding(table).refresh()
    facts = DropReport(
        table=".".join(table.name()),
        uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=table.metadata_location,
        purge=purge,
    )
    if not purge:
        if not dry_run:
            _drop(table, facts)
        return facts
    with Purge(table, as_budget(memory), dropped=dropped, only_catalog=only_catalog) as files:
        files.look()
        if not dry_run:
            TableLanding(table).refresh()
            if table.metadata_location != files.metadata_location:
                raise CommitConflictError(
                    f"another commit changed {facts.table} meanwhile. Nothing was dropped; start "
                    "again when no one writes to it"
                )
            _drop(table, facts)
            files.delete()
        return DropReport(
            facts.table,
            facts.uuid,
            facts.location,
            files.metadata_location,
            True,
            files.count,
            files.bytes,
            files.files_deleted,
            files.bytes_deleted,
            tuple(files.not_deleted),
            files.files_left,
        )


def rename_table(table: Table, new_name: str) -> Table:
    """Rename a table in its catalog. Its files stay where they are.

    Args:
        table: The table.
        new_name: The new name, with a namespace that exists.

    Raises:
        InvalidArgumentError: If the new name is invalid or taken, or its namespace does not exist.
        CatalogError: If the catalog can't rename the table.
    """
    if "" in new_name.split(".") or "." not in new_name:
        raise InvalidArgumentError(
            f"{new_name!r} is not a table name: include the namespace, as in 'db.t'"
        )
    catalog, old_name = table.catalog, table.name()
    uuid = table.metadata.table_uuid

    def is_renamed() -> bool:
        return not catalog.table_exists(old_name) and _uuid_of(catalog, new_name) == uuid

    try:
        catalog.rename_table(old_name, new_name)
    except TableAlreadyExistsError as error:
        raise _taken(new_name) from error
    except NoSuchNamespaceError as error:
        raise InvalidArgumentError(
            f"{new_name!r} can't be the new name, because the catalog has no namespace "
            f"{new_name.rpartition('.')[0]!r}: create it first with "
            f"catalog.create_namespace({new_name.rpartition('.')[0]!r})"
        ) from error
    except Exception as error:
        if _uuid_of(catalog, new_name) not in (None, uuid):
            raise _taken(new_name) from error
        _settle(catalog, error, is_renamed, f"rename {'.'.join(old_name)} to {new_name}")
    return catalog.load_table(new_name)


def _drop(table: Table, facts: DropReport) -> None:
    catalog, name = table.catalog, table.name()
    try:
        catalog.drop_table(name)
    except NoSuchTableError as error:
        raise CatalogError(f"{facts.table} does not exist any more: it was dropped") from error
    except Exception as error:
        _settle(catalog, error, lambda: not catalog.table_exists(name), f"drop {facts.table}")


def _settle(catalog: Catalog, error: Exception, is_done: Callable[[], bool], what: str) -> None:
    """Find out whether a change happened although the catalog raised an error."""
    properties = catalog.properties
    text = timeout_text(error, properties) or error_text(error, properties)
    try:
        done = is_done()
    except Exception:
        raise CatalogError(
            f"the catalog did not say whether it could {what}: {text}. List its tables to find out"
        ) from shown_cause(error, properties)
    if not done:
        raise CatalogError(f"the catalog did not {what}: {text}") from (
            shown_cause(error, properties)
        )


def _uuid_of(catalog: Catalog, name: str) -> object:
    try:
        return catalog.load_table(name).metadata.table_uuid
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _taken(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"there is a table {name!r} already: choose another name")
