"""The values of the common options, and what commands do with them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.output.text import print_json, print_lines

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from icestream.memory.budget import MemoryBudget


@dataclass(slots=True)
class Settings:
    """The values of the common options, which may come before or after the command's name.

    Attributes:
        catalog: Name of the catalog in PyIceberg's configuration. None for the default catalog.
        json: Whether to print one JSON document on stdout.
        quiet: Whether to print only errors on stderr.
        debug: Whether to print errors with their traceback.
        memory: The memory limit as the user wrote it.
        command: Name of the command that runs.
        table: The table that the command has opened, for messages.
    """

    catalog: str | None = None
    json: bool = False
    quiet: bool = False
    debug: bool = False
    memory: str | None = None
    command: str | None = None
    table: str | None = None

    def budget(self) -> MemoryBudget:
        """Create a budget with the limit of `--memory`."""
        from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget

        return MemoryBudget(self.memory or DEFAULT_MEMORY)

    @contextmanager
    def open_catalog(self, *, make: bool = False) -> Iterator[Catalog]:
        """Open the catalog, and close it at the end.

        Args:
            make: Whether to create the local catalog if no catalog is configured. For commands
                that may create tables. If the block fails, a catalog without tables is removed.
        """
        from icestream.catalogs import lookup as catalogs
        from icestream.catalogs.failed_creation import local_catalog_undone

        local = catalogs.is_local(self.catalog)
        with local_catalog_undone() if local and make else nullcontext():
            if local and make:
                catalog = catalogs.make_local_catalog()
            else:
                catalog = catalogs.open_catalog(self.catalog)
            with closing(catalog):
                if local and self.catalog is None:
                    self.say(f"no catalog is configured: using {catalogs.local_folder()}")
                yield catalog

    @contextmanager
    def open_table(self, name: str) -> Iterator[Table]:
        """Load a table, and close its catalog at the end."""
        from icestream.catalogs.lookup import load_table

        with self.open_catalog() as catalog:
            table = load_table(name, catalog)
            self.table = name
            yield table

    @contextmanager
    def changing(self, table: Table) -> Iterator[None]:
        """If the block is interrupted, add a note that says whether the table has changed."""
        before = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        version = table.metadata_location
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:
            stop.add_note(_after_interrupt(table, before, version, self.catalog))
            raise

    @contextmanager
    def loading(self, catalog: Catalog, name: str) -> Iterator[None]:
        """Do the same as `changing`, for a table that may not exist yet."""
        before = _snapshots(catalog, name)
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:
            try:
                new = sorted((_snapshots(catalog, name) or set()) - (before or set()))
                text = "was not created" if before is None else "is unchanged"
                text = f"{name} has the new snapshot {new[0]}" if new else f"{name} {text}"
            except Exception:
                text = f"could not find out whether {name} has changed"
            stop.add_note(text)
            raise

    def say(self, text: str) -> None:
        """Print a line on stderr, unless `--quiet` is set."""
        if not self.quiet:
            click.echo(f"icestream: {text}", err=True)

    def show(self, document: Mapping[str, Any], text: Callable[[], Sequence[str]]) -> None:
        """Print a result: the document if `--json` is set, else the text."""
        if self.json:
            print_json(document)
        else:
            print_lines(text())


def _snapshots(catalog: Catalog, name: str) -> set[int] | None:
    """Return the ids of the table's snapshots, or None if the table does not exist."""
    if not catalog.table_exists(name):
        return None
    return {each.snapshot_id for each in catalog.load_table(name).metadata.snapshots}


def _after_interrupt(table: Table, before: set[int], version: str, catalog: str | None) -> str:
    name = ".".join(table.name())
    look = shlex.join(["icestream", "tables", name, *(["--catalog", catalog] if catalog else [])])
    try:
        now = table.refresh().metadata.snapshots
    except Exception:
        return f"could not find out whether {name} has changed: see `{look}`"
    new = [str(each.snapshot_id) for each in now if each.snapshot_id not in before]
    if new:
        return f"{name} has the new snapshot {', '.join(new)}: see `{look}`"
    if table.metadata_location != version:
        return f"the metadata of {name} has changed: see `{look}`"
    return f"{name} is unchanged"
