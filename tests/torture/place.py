"""Where the table of an attack is: plain data, from which each process opens its own catalog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

import icestream as ice
from tests.support.catalogs import sqlite_catalog
from tests.support.loads import BY_PART, make_table
from tests.support.postgres import postgres_catalog
from tests.torture.operation import Operation

TABLE = "db.t"
_OPEN_TRIES = 20


@dataclass(frozen=True, slots=True)
class Place:
    """A catalog and the table of one round.

    Attributes:
        kind: "sqlite", "postgres" or "rest".
        uri: A SQLAlchemy URI, the path of a SQLite database, or the address of a REST catalog.
        warehouse: Where its tables go.
        partitioned: Whether the table is partitioned.
        properties: Properties of the catalog.
        table: The table's name.
    """

    kind: str
    uri: str
    warehouse: str
    partitioned: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    table: str = TABLE

    @contextmanager
    def opened(self) -> Iterator[Catalog]:
        """A catalog of this process."""
        catalog = self._open()
        try:
            yield catalog
        finally:
            catalog.close()

    def variant(self, random: Random) -> Place:
        """The same, with a table that is partitioned, or not."""
        return replace(self, partitioned=random.random() < 0.5)

    def like(self, other: Place) -> Place:
        """The same way to a table that is as the other's."""
        return replace(self, partitioned=other.partitioned)

    def _open(self) -> Catalog:
        for left in reversed(range(_OPEN_TRIES)):
            try:
                return self._open_once()
            except OperationalError:  # SQLite is busy, and says so instead of waiting
                if not left:
                    raise
                time.sleep(0.1)
        raise AssertionError

    def _open_once(self) -> Catalog:
        if self.kind == "sqlite":
            return sqlite_catalog(Path(self.uri), warehouse=self.warehouse, **self.properties)
        if self.kind == "postgres":
            return postgres_catalog(self.uri, warehouse=self.warehouse, **self.properties)
        return RestCatalog("tests", uri=self.uri, **self.properties)

    def load(self, catalog: Catalog) -> Table:
        """The table."""
        return catalog.load_table(self.table)


def create(place: Place, random: Random) -> None:
    """Make the table, with some rows in it."""
    with place.opened() as catalog:
        table = make_table(
            catalog,
            place.table,
            spec=BY_PART if place.partitioned else UNPARTITIONED_PARTITION_SPEC,
            write__delete__mode=random.choice(["copy-on-write", "merge-on-read"]),
            commit__retry__min_wait_ms="1",
            commit__retry__max_wait_ms="50",
        )
        first = Operation("first", "append", ids=tuple(range(200)))
        ice.append(table, first.arrow(), properties=first.summary())


def stored_keys(table: Table) -> set[str]:
    """Every file below the table's location, as the store lists them; without the scheme."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, _, location = table.location().partition("://")
    if scheme == "file":
        files: Any = pafs.LocalFileSystem()
    else:
        assert isinstance(table.io, PyArrowFileIO)
        files = table.io.fs_by_scheme(scheme, location.partition("/")[0])
    selector = pafs.FileSelector(location, recursive=True)
    return {info.path for info in files.get_file_info(selector) if info.is_file}
