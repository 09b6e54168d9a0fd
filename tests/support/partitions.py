"""Partitioned tables: every transform, spec evolution, and files that lack partition columns.

Every recipe takes a catalog and returns a `PartitionedTable`: the table, and the rows that a right
reader must give, ordered by `id`. `PARTITIONINGS` lists them all, for parametrized tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
    _to_partition_representation,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    DateType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
)

from tests.support.commits import commit_files
from tests.support.data_files import set_name_mapping, write_parquet_file

Rows = list[dict[str, Any]]
_CATEGORIES = ["red", "green", "a/b=c %", "ü", "", None]
_SOURCE_IDS = {"id": 1, "category": 2, "amount": 3, "day": 4, "at": 5}


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """A table and the rows it must read as, ordered by `id`."""

    table: Table
    expected: Rows


def partition_schema() -> Schema:
    """Return the schema of all recipes here."""
    return Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "category", StringType()),
        NestedField(3, "amount", IntegerType()),
        NestedField(4, "day", DateType()),
        NestedField(5, "at", TimestampType()),
    )


def partition_rows(start: int, stop: int) -> Rows:
    """Return rows with ids from `start` on; every column but `id` has nulls."""
    return [
        {
            "id": i,
            "category": _CATEGORIES[i % len(_CATEGORIES)],
            "amount": i * 7 % 50 - 20 if i % 8 else None,
            "day": date(2024, 2, 27) + timedelta(days=i % 4) if i % 9 else None,
            "at": datetime(1969, 12, 30, 23) + timedelta(hours=i % 60) if i % 10 else None,
        }
        for i in range(start, stop)
    ]


def add_partitioned(table: Table, rows: Rows, *, without: tuple[str, ...] = ()) -> None:
    """Write one file per partition of the current spec and commit them as one snapshot.

    Args:
        table: A table of `partition_schema()`.
        rows: Its rows.
        without: Columns to leave out of the files, which then carry no field ids either.
    """
    fields = table.spec().fields
    groups: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in rows:
        groups[tuple(_partition_value(table, field, row) for field in fields)].append(row)
    arrow_schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    written = []
    for key, group in groups.items():
        contents = pa.Table.from_pylist(group, schema=arrow_schema).drop_columns(list(without))
        partition = dict(zip([field.name for field in fields], key, strict=True))
        written.append(
            write_parquet_file(table, contents, partition=partition, field_ids=not without)
        )
    commit_files(table, written)


def identity(catalog: Catalog) -> PartitionedTable:
    """By category and day, with names that need escaping and null partitions."""
    return _by(catalog, "identity", category=IdentityTransform(), day=IdentityTransform())


def bucket(catalog: Catalog) -> PartitionedTable:
    """By buckets of `id`."""
    return _by(catalog, "bucket", id=BucketTransform(4))


def truncate(catalog: Catalog) -> PartitionedTable:
    """By the first two characters of `category` and by tens of `amount`, below zero too."""
    return _by(catalog, "truncate", category=TruncateTransform(2), amount=TruncateTransform(10))


def day(catalog: Catalog) -> PartitionedTable:
    """By day of a timestamp, before 1970 too."""
    return _by(catalog, "day", at=DayTransform())


def void(catalog: Catalog) -> PartitionedTable:
    """By a void field beside an identity: what dropping a partition field leaves in version 1."""
    return _by(catalog, "void", category=VoidTransform(), day=IdentityTransform())


def evolved_spec(catalog: Catalog) -> PartitionedTable:
    """Unpartitioned, then by category, then by category and buckets, then by buckets alone."""
    table = _create(catalog, "evolved_spec", UNPARTITIONED_PARTITION_SPEC)
    add_partitioned(table, partition_rows(0, 20))
    with table.update_spec() as update:
        update.add_identity("category")
    add_partitioned(table, partition_rows(20, 40))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(3), "id_bucket")
    add_partitioned(table, partition_rows(40, 60))
    with table.update_spec() as update:
        update.remove_field("category")
    add_partitioned(table, partition_rows(60, 80))
    return PartitionedTable(table, partition_rows(0, 80))


def hive_migrated(catalog: Catalog) -> PartitionedTable:
    """By identities of three types that the files lack; no field ids, a name mapping instead."""
    columns = ("category", "amount", "day")
    transforms = {name: IdentityTransform() for name in columns}
    table = _create(catalog, "hive_migrated", _spec(**transforms))
    set_name_mapping(table)
    add_partitioned(table, partition_rows(0, 40), without=columns)
    return PartitionedTable(table, partition_rows(0, 40))


PARTITIONINGS: dict[str, Callable[[Catalog], PartitionedTable]] = {
    recipe.__name__: recipe
    for recipe in (identity, bucket, truncate, day, void, evolved_spec, hive_migrated)
}


def _by(catalog: Catalog, name: str, **transforms: Transform[Any, Any]) -> PartitionedTable:
    table = _create(catalog, name, _spec(**transforms))
    add_partitioned(table, partition_rows(0, 30))
    add_partitioned(table, partition_rows(30, 60))
    return PartitionedTable(table, partition_rows(0, 60))


def _spec(**transforms: Transform[Any, Any]) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(
                source_id=_SOURCE_IDS[column],
                field_id=1000 + number,
                transform=transform,
                name=column if isinstance(transform, IdentityTransform) else f"{column}_part",
            )
            for number, (column, transform) in enumerate(transforms.items())
        )
    )


def _create(catalog: Catalog, name: str, spec: PartitionSpec) -> Table:
    catalog.create_namespace_if_not_exists("partitioned")
    return catalog.create_table(f"partitioned.{name}", partition_schema(), partition_spec=spec)


def _partition_value(table: Table, field: PartitionField, row: dict[str, Any]) -> Any:
    source = table.schema().find_field(field.source_id)
    internal = _to_partition_representation(source.field_type, row[source.name])
    return field.transform.transform(source.field_type)(internal)
