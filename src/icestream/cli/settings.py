"""What the options that all commands share say, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from icestream.memory import MemoryBudget


@dataclass(slots=True)
class Settings:
    """The shared options. Each may stand before or after the command's name.

    Attributes:
        catalog: The catalog's name in PyIceberg's configuration; None for the default one.
        json: Whether stdout gets one JSON document.
        quiet: Whether stderr gets nothing but errors.
        debug: Whether errors come with their traceback.
        memory: The limit, as it was written.
    """

    catalog: str | None = None
    json: bool = False
    quiet: bool = False
    debug: bool = False
    memory: str | None = None

    def budget(self) -> MemoryBudget:
        """A new budget with the limit that was asked for."""
        from icestream.memory import DEFAULT_MEMORY, MemoryBudget

        return MemoryBudget(self.memory or DEFAULT_MEMORY)

    @contextmanager
    def open_catalog(self, *, make: bool = False) -> Iterator[Catalog]:
        """The catalog, closed at the end.

        Args:
            make: Whether the local catalog is made where nothing is configured: for commands that
                may create tables.
        """
        from icestream import catalogs

        local = catalogs.is_local(self.catalog)
        used = "using" if catalogs.has_local_catalog() else "making one in"
        if local and make:
            catalog = catalogs.make_local_catalog()
        else:
            catalog = catalogs.open_catalog(self.catalog)
        try:
            if local and self.catalog is None:
                self.say(f"no catalog is configured: {used} {catalogs.local_folder()}")
            yield catalog
        finally:
            catalog.close()

    @contextmanager
    def open_table(self, name: str) -> Iterator[Table]:
        """The table of that name; its catalog is closed at the end."""
        from icestream.catalogs import load_table

        with self.open_catalog() as catalog:
            yield load_table(name, catalog)

    @contextmanager
    def changing(self, table: Table) -> Iterator[None]:
        """Say what became of the table if its change is interrupted."""
        before = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:
            stop.add_note(_after_interrupt(table, before))
            raise

    @contextmanager
    def loading(self, catalog: Catalog, name: str) -> Iterator[None]:
        """As `changing`, for a table that may not be there yet."""
        before = _snapshots(catalog, name)
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:
            try:
                new = sorted((_snapshots(catalog, name) or set()) - (before or set()))
                text = (
                    f"{name} has gained snapshot {new[0]} meanwhile"
                    if new
                    else (
                        f"{name} is unchanged" if before is not None else f"{name} was not created"
                    )
                )
            except Exception:
                text = f"whether {name} has changed could not be looked up"
            stop.add_note(text)
            raise

    def say(self, text: str) -> None:
        """A line for people on stderr, unless quiet."""
        if not self.quiet:
            click.echo(f"icestream: {text}", err=True)

    def show(self, document: Mapping[str, Any], text: Callable[[], Sequence[str]]) -> None:
        """Print a result: the document as JSON, or the text."""
        if self.json:
            print_json(document)
        else:
            print_lines(text())


def _snapshots(catalog: Catalog, name: str) -> set[int] | None:
    """The table's snapshots; None if there is no such table."""
    if not catalog.table_exists(name):
        return None
    return {each.snapshot_id for each in catalog.load_table(name).metadata.snapshots}


def _after_interrupt(table: Table, before: set[int]) -> str:
    name = ".".join(table.name())
    try:
        now = table.refresh().metadata.snapshots
    except Exception:
        return f"whether {name} has changed could not be looked up: see `icestream tables {name}`"
    new = [str(each.snapshot_id) for each in now if each.snapshot_id not in before]
    if new:
        return (
            f"{name} has gained snapshot {', '.join(new)} meanwhile: see `icestream tables {name}`"
        )
    return f"{name} is unchanged"
