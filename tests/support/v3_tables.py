"""Version-3 tables in a SQL catalog, which PyIceberg 0.12 reads but will not create or write.

Data and deletes are added to them with `tests.support.commits` and the modules built on it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import IcebergBaseModel
from sqlalchemy import update
from sqlalchemy.orm import Session

from tests.support.commits import v3_metadata_writes


def create_v3_table(
    catalog: SqlCatalog,
    identifier: str,
    schema: Schema,
    *,
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    properties: dict[str, str] | None = None,
) -> Table:
    """Create an empty version-3 table."""
    with v3_metadata_writes():
        table = catalog.create_table(
            identifier,
            schema,
            partition_spec=partition_spec,
            properties={**(properties or {}), "format-version": "3"},
        )
    # The spec requires next-row-id from the first version on; PyIceberg leaves it out.
    replace_metadata(table, **{"next-row-id": 0})
    return table


def upgrade_to_v3(table: Table) -> Table:
    """Make a version-2 table version 3, files and snapshots kept, and refresh it."""
    if table.format_version != 2:
        raise ValueError(f"{'.'.join(table.name())} is version {table.format_version}, not 2")
    replace_metadata(table, **{"format-version": 3, "next-row-id": 0})
    return table


@contextmanager
def v3_schema_updates(table: Table) -> Iterator[Table]:
    """Allow `table.update_schema()` and other metadata changes on a version-3 table."""
    with v3_metadata_writes():
        yield table
    table.refresh()


def replace_metadata(table: Table, **changes: object) -> None:
    """Write a new metadata file with top-level JSON keys changed, and point the catalog at it."""
    table.refresh()
    catalog = table.catalog
    if not isinstance(catalog, SqlCatalog):
        raise TypeError(f"needs a table of a SqlCatalog, not of {type(catalog).__name__}")
    metadata = json.loads(IcebergBaseModel.model_dump_json(table.metadata))
    metadata.update(changes)
    version = int(table.metadata_location.rsplit("/", 1)[-1].split("-", 1)[0]) + 1
    location = table.location_provider().new_table_metadata_file_location(version)
    with table.io.new_output(location).create() as stream:
        stream.write(json.dumps(metadata).encode())
    *namespace, name = table.name()
    statement = (
        update(IcebergTables)
        .where(
            IcebergTables.catalog_name == catalog.name,
            IcebergTables.table_namespace == ".".join(namespace),
            IcebergTables.table_name == name,
            IcebergTables.metadata_location == table.metadata_location,
        )
        .values(metadata_location=location, previous_metadata_location=table.metadata_location)
    )
    with Session(catalog.engine) as session:
        changed = session.execute(statement).rowcount
        session.commit()
    if changed != 1:
        raise RuntimeError(f"{changed} catalog rows changed for {'.'.join(table.name())}")
    table.refresh()
