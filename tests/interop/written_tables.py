"""Tables that icestream wrote, and the rows that every engine must find in them.

The rows are worked out from what was handed to icestream, not by any reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
)

import icestream as ice
from tests.support.all_types import all_types_rows, all_types_schema
from tests.support.partitions import partition_rows, partition_schema
from tests.support.plain_rows import Row, plain_rows

TRANSFORMS: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "bucket": BucketTransform(4),
    "truncate": TruncateTransform(4),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
    "void": VoidTransform(),
}
CODECS = ("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed")


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table and its rows.

    Attributes:
        name: What the catalog knows it as.
        metadata: Where its metadata is.
        schema: Its current schema.
        rows: Its rows, plain and in order of `id`.
        snapshot_id: The snapshot to read, where it is not the current one.
    """

    name: str
    metadata: str
    schema: Schema
    rows: list[Row]
    snapshot_id: int | None = None

    @classmethod
    def of(
        cls, table: Table, rows: pa.Table | list[Row], snapshot_id: int | None = None
    ) -> WrittenTable:
        """A table as it is in the catalog."""
        schema = table.refresh().schema()
        arrow = arrow_rows(schema, rows) if isinstance(rows, list) else rows
        plain = plain_rows(arrow, schema)
        return cls(".".join(table.name()), table.metadata_location, schema, plain, snapshot_id)


def arrow_rows(schema: Schema, rows: Iterable[Row]) -> pa.Table:
    """Rows with the table's own types."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.Table.from_pylist(list(rows), schema=arrow)


class Writing:
    """Makes the tables, each once, in one catalog and for one format version.

    Args:
        catalog: Where; it has a namespace `db`.
        version: Their format version.
        without: Columns that tables of all types go without.
    """

    def __init__(self, catalog: Catalog, version: int, without: tuple[str, ...] = ()) -> None:
        self._catalog = catalog
        self._version = version
        fields = (field for field in all_types_schema().fields if field.name not in without)
        self.types = Schema(*fields)
        self._made: dict[Any, Any] = {}

    def rows(self, n: int, seed: int) -> pa.Table:
        """Rows of all types, as `all_types_rows`."""
        return all_types_rows(n, seed).select([field.name for field in self.types.fields])

    def table(self, recipe: str) -> WrittenTable:
        """A table of `RECIPES`."""
        return self._once(recipe, lambda: RECIPES[recipe](self))

    def transformed(self, transform: str) -> dict[str, WrittenTable]:
        """Tables of all types, each partitioned by another column, by that column's name."""
        return self._once(
            ("transformed", transform), lambda: self._transformed(TRANSFORMS[transform])
        )

    def compressed(self, codec: str) -> WrittenTable:
        """A table of all types whose files are compressed in another way."""
        return self._once(("compressed", codec), lambda: self._compressed(codec))

    def create(
        self,
        schema: Schema | pa.Schema,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        **properties: str,
    ) -> Table:
        """A new table."""
        return self._catalog.create_table(
            f"db.v{self._version}_{len(self._made)}_{len(self._catalog.list_tables('db'))}",
            schema,
            partition_spec=spec,
            sort_order=sort_order,
            properties={"format-version": str(self._version), **properties},
        )

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _transformed(self, transform: Transform[Any, Any]) -> dict[str, WrittenTable]:
        schema, rows = self.types, self.rows(15, seed=3)
        made = {}
        for field in schema.fields:
            kind = field.field_type
            if not isinstance(kind, PrimitiveType) or not transform.can_transform(kind):
                continue
            used = transform
            if isinstance(transform, TruncateTransform) and isinstance(kind, DecimalType):
                used = TruncateTransform(3)  # The lowest decimals are multiples of 3, not of 4.
            spec = PartitionSpec(PartitionField(field.field_id, 1000, used, "part"))
            table = self.create(schema, spec)
            ice.append(table, rows)
            made[field.name] = WrittenTable.of(table, rows)
        return made

    def _compressed(self, codec: str) -> WrittenTable:
        rows = self.rows(100, seed=4)
        table = self.create(self.types, **{"write.parquet.compression-codec": codec})
        ice.append(table, rows)
        return WrittenTable.of(table, rows)


def _all_types(writing: Writing) -> WrittenTable:
    """Every type, with nulls on every level, in two snapshots and several row groups."""
    table = writing.create(writing.types, **{"write.parquet.row-group-limit": "150"})
    first, second = writing.rows(500, seed=1), writing.rows(1000, seed=2).slice(500)
    ice.append(table, first.to_reader(max_chunksize=37))
    ice.append(table, second)
    return WrittenTable.of(table, pa.concat_tables([first, second]))


def _only_nulls(writing: Writing) -> WrittenTable:
    """Every optional column null, in all rows."""
    table = writing.create(writing.types)
    rows = arrow_rows(writing.types, [{"id": i} for i in range(5)])
    ice.append(table, rows)
    return WrittenTable.of(table, rows)


def _no_rows(writing: Writing) -> WrittenTable:
    """Rows that came and went: a snapshot without data files."""
    table = writing.create(partition_schema())
    ice.append(table, arrow_rows(partition_schema(), partition_rows(0, 5)))
    ice.delete(table, "id >= 0")
    return WrittenTable.of(table, [])


def _several_fields(writing: Writing) -> WrittenTable:
    """Four partition fields of a string that needs escaping, an int, a timestamp and a bucket."""
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "category"),
        PartitionField(3, 1001, TruncateTransform(10), "amount_tens"),
        PartitionField(5, 1002, DayTransform(), "at_day"),
        PartitionField(1, 1003, BucketTransform(3), "id_bucket"),
    )
    table = writing.create(partition_schema(), spec)
    rows = partition_rows(0, 120)
    ice.append(table, arrow_rows(partition_schema(), rows))
    return WrittenTable.of(table, rows)


def _evolved_by_loads(writing: Writing) -> WrittenTable:
    """New columns, wider types and nested fields, each by the load that brought them."""
    table = writing.create(
        Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "count", IntegerType(), required=True),
        )
    )
    ice.append(table, pa.table({"id": [0, 1], "count": pa.array([1, 2], pa.int32())}))
    wide = pa.table(
        {
            "id": [2, 3],
            "count": [2**40, None],
            "person": [{"name": "a", "age": 1}, None],
            "tags": [["x", None], []],
        }
    )
    ice.append(table, wide, schema_mode="evolve")
    deeper = {"id": [4], "person": [{"name": None, "age": 2**40, "zip": "z"}]}
    deeper_type = pa.struct([("name", pa.string()), ("age", pa.int64()), ("zip", pa.string())])
    ice.append(
        table,
        pa.table({"id": deeper["id"], "person": pa.array(deeper["person"], deeper_type)}),
        schema_mode="evolve",
    )
    ice.append(table, pa.table({"tags": [["last"]], "id": [5]}))
    nobody = {"count": None, "person": None, "tags": None}
    return WrittenTable.of(
        table,
        [
            {**nobody, "id": 0, "count": 1},
            {**nobody, "id": 1, "count": 2},
            {
                "id": 2,
                "count": 2**40,
                "person": {"name": "a", "age": 1, "zip": None},
                "tags": ["x", None],
            },
            {**nobody, "id": 3, "tags": []},
            {**nobody, "id": 4, "person": {"name": None, "age": 2**40, "zip": "z"}},
            {**nobody, "id": 5, "tags": ["last"]},
        ],
    )


def _evolved_by_hand(writing: Writing) -> WrittenTable:
    """Columns renamed, moved, dropped and added again under the old name."""
    table = writing.create(
        Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "left", StringType()),
            NestedField(3, "right", StringType()),
            NestedField(4, "value", IntegerType()),
        )
    )

    def add(**row: Any) -> None:
        ice.append(table, arrow_rows(table.refresh().schema(), [row]))

    add(id=0, left="L0", right="R0", value=7)
    for old, new in [("left", "hold"), ("right", "left"), ("hold", "right")]:
        with table.update_schema() as update:
            update.rename_column(old, new)
    add(id=1, left="R1", right="L1", value=8)
    with table.update_schema() as update:
        update.delete_column("value")
    add(id=2, left="R2", right="L2")
    with table.update_schema() as update:
        update.add_column("value", LongType())
        update.move_first("value")
    add(id=3, left="R3", right="L3", value=2**40)
    return WrittenTable.of(
        table,
        [
            {"id": i, "left": f"R{i}", "right": f"L{i}", "value": 2**40 if i == 3 else None}
            for i in range(4)
        ],
    )


def _evolved_spec(writing: Writing) -> WrittenTable:
    """A new partitioning before each load; then rows of all specs are replaced and deleted."""
    schema = partition_schema()
    table = writing.create(schema)
    ice.append(table, arrow_rows(schema, partition_rows(0, 20)))
    with table.update_spec() as update:
        update.add_identity("category")
    ice.append(table, arrow_rows(schema, partition_rows(20, 40)))
    with table.update_spec() as update:
        update.add_field("at", MonthTransform(), "at_month")
    ice.append(table, arrow_rows(schema, partition_rows(40, 60)))
    with table.update_spec() as update:
        update.remove_field("category")
        update.add_field("id", BucketTransform(3), "id_bucket")
    replaced = [{**row, "amount": -1} for row in partition_rows(10, 50)]
    ice.overwrite(table, arrow_rows(schema, replaced), where="id >= 10 and id < 50")
    ice.delete(table, "id in (3, 33, 55)")
    kept = [*partition_rows(0, 10), *replaced, *partition_rows(50, 60)]
    return WrittenTable.of(table, [row for row in kept if row["id"] not in (3, 33, 55)])


def _overwritten_partitions(writing: Writing) -> WrittenTable:
    """Partitions replaced by those that a load had rows for."""
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "day"))
    table = writing.create(partition_schema(), spec)
    rows = partition_rows(0, 40)
    ice.append(table, arrow_rows(partition_schema(), rows))
    day = rows[1]["day"]
    new = [{**rows[1], "id": 100}]
    ice.overwrite(table, arrow_rows(partition_schema(), new), partitions="dynamic")
    return WrittenTable.of(table, [row for row in rows if row["day"] != day] + new)


def _branch(writing: Writing) -> WrittenTable:
    """A branch with rows that the main one does not have."""
    table, rows = _forked(writing)
    snapshot = table.snapshot_by_name("audit")
    assert snapshot is not None
    return WrittenTable.of(table, rows[:30], snapshot.snapshot_id)


def _main_beside_a_branch(writing: Writing) -> WrittenTable:
    """The main branch of such a table."""
    table, rows = _forked(writing)
    return WrittenTable.of(table, rows[:10] + rows[30:])


def _forked(writing: Writing) -> tuple[Table, list[Row]]:
    """Rows 0-9 on both branches, 10-29 on the branch, 30-39 on the main one."""
    rows = partition_rows(0, 40)
    table = writing.create(partition_schema())
    report = ice.append(table, arrow_rows(partition_schema(), rows[:10]))
    table.manage_snapshots().create_branch(report.snapshot_id, "audit").commit()
    ice.append(table, arrow_rows(partition_schema(), rows[10:30]), branch="audit")
    ice.append(table, arrow_rows(partition_schema(), rows[30:]))
    return table.refresh(), rows


def _odd_names(writing: Writing) -> WrittenTable:
    """Names that Avro can't have, in columns and in partition fields."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "a b", StringType()),
        NestedField(3, "1st", LongType()),
        NestedField(4, "ü/ß=%", StringType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "a b"),
        PartitionField(3, 1001, BucketTransform(2), "1st bucket"),
    )
    table = writing.create(schema, spec)
    rows = [
        {"id": i, "a b": [None, "", "x/y", "ü=1&2"][i % 4], "1st": i, "ü/ß=%": f"{i}"}
        for i in range(20)
    ]
    ice.append(table, arrow_rows(schema, rows))
    return WrittenTable.of(table, rows)


def _as_the_properties_say(writing: Writing) -> WrittenTable:
    """Sorted, with bloom filters, small files in the object-store layout and few metrics."""
    order = SortOrder(SortField(source_id=3, transform=IdentityTransform()))
    table = writing.create(
        partition_schema(),
        PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "category")),
        order,
        **{
            "write.object-storage.enabled": "true",
            "write.parquet.bloom-filter-enabled.column.category": "true",
            "write.target-file-size-bytes": "2000",
            "write.metadata.metrics.default": "truncate(2)",
            "write.metadata.metrics.column.amount": "none",
        },
    )
    rows = partition_rows(0, 300)
    ice.append(table, arrow_rows(partition_schema(), rows))
    return WrittenTable.of(table, rows)


def _merged(writing: Writing, mode: str, spec: PartitionSpec) -> WrittenTable:
    """Rows of every type merged twice, and some deleted; version 1 has no merge-on-read."""
    modes = {"write.merge.mode": mode, "write.delete.mode": mode}
    table = writing.create(writing.types, spec, **modes)
    first = writing.rows(300, seed=1)
    second = writing.rows(500, seed=2).slice(100, 300)
    third = writing.rows(500, seed=3).slice(350, 100)
    ice.append(table, first)
    ice.merge(table, second, on="id")
    ice.merge(table, third, on="id")
    ice.delete(table, "id < 20 or id = 360")
    kept = [first.slice(20, 80), second.slice(0, 250), third.slice(0, 10), third.slice(11)]
    return WrittenTable.of(table, pa.concat_tables(kept))


def _merged_on_write(writing: Writing) -> WrittenTable:
    return _merged(writing, "copy-on-write", UNPARTITIONED_PARTITION_SPEC)


def _merged_on_read(writing: Writing) -> WrittenTable:
    return _merged(writing, "merge-on-read", UNPARTITIONED_PARTITION_SPEC)


def _partitions_merged_on_read(writing: Writing) -> WrittenTable:
    """Updates move rows from partition to partition."""
    by_flag = PartitionSpec(PartitionField(_flag_id(), 1000, IdentityTransform(), "flag"))
    return _merged(writing, "merge-on-read", by_flag)


def _flag_id() -> int:
    return all_types_schema().find_field("boolean").field_id


RECIPES: dict[str, Callable[[Writing], WrittenTable]] = {
    recipe.__name__.removeprefix("_"): recipe
    for recipe in (
        _all_types,
        _only_nulls,
        _no_rows,
        _several_fields,
        _evolved_by_loads,
        _evolved_by_hand,
        _evolved_spec,
        _overwritten_partitions,
        _branch,
        _main_beside_a_branch,
        _odd_names,
        _as_the_properties_say,
        _merged_on_write,
        _merged_on_read,
        _partitions_merged_on_read,
    )
}
