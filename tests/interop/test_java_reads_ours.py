"""What icestream writes is read by Iceberg's Java runtime: the same rows, files and snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform

import icestream as ice
from tests.interop.written_tables import CODECS, RECIPES, TRANSFORMS, Writing, WrittenTable
from tests.support.all_types import all_types_schema
from tests.support.java_process import JavaError, JavaSpark
from tests.support.plain_rows import Row, differences, plain_rows

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

# Spark has no type for it, and so can't read a table that has it.
_WITHOUT = ("time",)
_COMPARED = ("id", "boolean", "int", "long", "decimal9", "decimal38", "date", "timestamp", "string")
_FILE_COLUMNS = (
    "content",
    "file_path",
    "file_format",
    "spec_id",
    "record_count",
    "file_size_in_bytes",
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
)
_PARTITION_COUNTS = (
    "record_count",
    "file_count",
    "total_data_file_size_in_bytes",
    "position_delete_record_count",
    "position_delete_file_count",
    "equality_delete_record_count",
    "equality_delete_file_count",
    "last_updated_snapshot_id",
)


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def writing(request: pytest.FixtureRequest, java: JavaSpark) -> Writing:
    """Tables of both format versions, in the catalog that Java knows too."""
    return Writing(java.catalog(), request.param, _WITHOUT)


def _rows(java: JavaSpark, table: WrittenTable) -> list[Row]:
    at = f" VERSION AS OF {table.snapshot_id}" if table.snapshot_id else ""
    return plain_rows(java.query(f"SELECT * FROM {table.name}{at}"), table.schema)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_table_is_read_with_the_same_rows(java, writing, recipe):
    table = writing.table(recipe)
    assert differences(_rows(java, table), table.rows) == []


@pytest.mark.parametrize("recipe", RECIPES)
def test_rows_are_counted_and_bounded_by_metadata(java, writing, recipe):
    """Where no row is deleted by position, Java answers this from the manifests alone."""
    table = writing.table(recipe)
    at = f" VERSION AS OF {table.snapshot_id}" if table.snapshot_id else ""
    found = java.query(f"SELECT count(*) AS n, min(id) AS a, max(id) AS z FROM {table.name}{at}")
    ids = [row["id"] for row in table.rows]
    expected = {"n": len(ids), "a": min(ids, default=None), "z": max(ids, default=None)}
    assert found.to_pylist() == [expected]


def test_a_branch_is_read_by_its_name(java, writing):
    table = writing.table("branch")
    found = java.query(f"SELECT * FROM {table.name} VERSION AS OF 'audit'")
    assert differences(plain_rows(found, table.schema), table.rows) == []


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_is_read_with_the_same_rows(java, writing, codec):
    table = writing.compressed(codec)
    if codec == "brotli":
        with pytest.raises(JavaError, match="BrotliCodec was not found"):  # Spark ships none
            _rows(java, table)
    else:
        assert differences(_rows(java, table), table.rows) == []


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_partitions_of_every_type_are_read_with_the_same_rows(java, writing, transform):
    tables = writing.transformed(transform)
    assert tables
    for column, table in tables.items():
        if (transform, column) == ("identity", "fixed"):
            # Java takes Avro's fixed for bytes with a length in front, and writes it so too.
            with pytest.raises(JavaError, match="Failed to read next record"):
                _rows(java, table)
        else:
            assert (column, differences(_rows(java, table), table.rows)) == (column, [])


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_rows_are_found_by_the_value_of_the_partitioned_column(java, writing, transform):
    """Java skips files by partition values and by bounds, so both must be right."""
    for column, table in writing.transformed(transform).items():
        values = _values(table, column)
        if not values:
            continue
        finds = [
            f"SELECT id, {number} AS value FROM {table.name} WHERE `{column}` = {_literal(value)}"
            for number, value in enumerate(values)
        ]
        found = java.query(" UNION ALL ".join(finds)).to_pylist()
        expected = [
            (row["id"], number)
            for number, value in enumerate(values)
            for row in table.rows
            if row[column] == value
        ]
        assert (column, sorted((row["id"], row["value"]) for row in found)) == (
            column,
            sorted(expected),
        )


def _values(table: WrittenTable, column: str) -> list[Any]:
    if column not in _COMPARED:
        return []
    values = sorted({row[column] for row in table.rows if row[column] is not None})
    return values[:: max(1, len(values) // 3)]


def _literal(value: Any) -> str:
    kinds = {bool: "BOOLEAN", int: "BIGINT", date: "DATE", datetime: "TIMESTAMP_NTZ"}
    if isinstance(value, str):
        return f"decode(X'{value.encode().hex()}', 'utf-8')"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL(38, {-value.as_tuple().exponent}))"
    return f"CAST('{value}' AS {kinds[type(value)]})"


def test_a_table_with_times_is_refused_by_java_as_its_type_is_unknown_to_spark(java):
    table = java.catalog().create_table("db.times", all_types_schema())
    ice.append(table, Writing(java.catalog(), 2).rows(3, seed=1))
    with pytest.raises(JavaError, match="time"):
        java.query("SELECT * FROM db.times")


@pytest.mark.parametrize("recipe", RECIPES)
def test_files_are_described_the_same(java, writing, recipe):
    table = java.catalog().load_table(writing.table(recipe).name)
    columns = ", ".join(_FILE_COLUMNS)
    found = java.query(f"SELECT {columns} FROM {'.'.join(table.name())}.files").to_pylist()
    assert {row["file_path"]: _plain(row) for row in found} == _in_manifests(table)


def _in_manifests(table: Table) -> dict[str, Row]:
    """The table's files by path, as PyIceberg reads the manifests."""
    snapshot = table.current_snapshot()
    assert snapshot
    return {
        entry.data_file.file_path: _plain(
            {name: getattr(entry.data_file, name) for name in _FILE_COLUMNS}
        )
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def _plain(file: Row) -> Row:
    """Maps as lists of pairs, in order; what is empty is the same as what is missing."""
    return {
        name: sorted(value.items() if hasattr(value, "items") else value) or None
        if isinstance(value, list | Mapping)
        else value
        for name, value in file.items()
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_snapshots_are_described_the_same(java, writing, recipe):
    table = java.catalog().load_table(writing.table(recipe).name)
    found = java.query(f"SELECT * FROM {'.'.join(table.name())}.snapshots").to_pylist()
    assert _by_snapshot(found) == _by_snapshot(table.inspect.snapshots().to_pylist())
    refs = java.query(f"SELECT * FROM {'.'.join(table.name())}.refs").to_pylist()
    assert {ref["name"]: (ref["type"], ref["snapshot_id"]) for ref in refs} == {
        name: (ref.snapshot_ref_type.value.upper(), ref.snapshot_id)
        for name, ref in table.metadata.refs.items()
    }


def _by_snapshot(snapshots: list[Row]) -> dict[int, tuple[Any, ...]]:
    return {
        row["snapshot_id"]: (
            row["parent_id"],
            row["operation"],
            row["manifest_list"],
            dict(row["summary"]),
            row["committed_at"].replace(tzinfo=None),
        )
        for row in snapshots
    }


@pytest.mark.parametrize("recipe", RECIPES)
def test_partitions_are_described_the_same(java, writing, recipe):
    table = java.catalog().load_table(writing.table(recipe).name)
    keys = ["partition", "spec_id"] if table.spec().fields else []
    columns = [*keys, *_PARTITION_COUNTS]
    ours = table.inspect.partitions().select(columns).to_pylist()
    found = java.query(f"SELECT * FROM {'.'.join(table.name())}.partitions").select(columns)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, ours))


def test_snapshots_say_what_the_reports_said(java):
    """Every verb once, in both modes; Java's view of its snapshot against the report."""
    writing = Writing(java.catalog(), 2, _WITHOUT)
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "part"))
    table = writing.create(writing.types, spec)
    rows = writing.rows(300, seed=1)
    _said(java, table, ice.append(table, rows.slice(0, 200)))
    for mode, seed in [("merge-on-read", 2), ("copy-on-write", 3)]:
        changed = writing.rows(300, seed=seed).slice(150, 100)
        _said(java, table, ice.merge(table, changed, on="id", write_mode=mode))
        with table.transaction() as transaction:
            transaction.set_properties({"write.delete.mode": mode})
        _said(java, table, ice.delete(table, f"id in ({seed}, {seed + 100})"))
    _said(java, table, ice.overwrite(table, rows.slice(0, 10), where="id < 20"))


def _said(java: JavaSpark, table: Table, report: ice.WriteReport) -> None:
    name = ".".join(table.name())
    found = java.query(f"SELECT * FROM {name}.snapshots WHERE snapshot_id = {report.snapshot_id}")
    [row] = found.to_pylist()
    summary = {key: int(value) for key, value in row["summary"] if value.isdigit()}
    # Only what the reader must do differently has a name of its own in a snapshot.
    assert row["operation"] == {"merge": "overwrite"}.get(report.operation, report.operation)
    assert summary.get("added-data-files", 0) == report.files_added
    assert summary.get("deleted-data-files", 0) == report.files_removed
    assert summary.get("added-delete-files", 0) == report.delete_files_added
    assert summary.get("added-files-size", 0) == report.bytes_written
    files = java.query(f"SELECT content, record_count, file_size_in_bytes FROM {name}.files")
    assert _totals(files) == {
        0: (summary["total-data-files"], summary["total-records"]),
        1: (summary["total-delete-files"], summary["total-position-deletes"]),
    }
    assert sum(files["file_size_in_bytes"].to_pylist()) == summary["total-files-size"]
    found = plain_rows(java.query(f"SELECT * FROM {name}"), table.schema())
    ours = pa.Table.from_batches(ice.scan(table), schema=ice.scan(table).schema)
    assert differences(found, plain_rows(ours, table.schema())) == []


def _totals(files: pa.Table) -> dict[int, tuple[int, int]]:
    kinds = files["content"].to_pylist()
    counts = files["record_count"].to_pylist()
    return {
        kind: (
            kinds.count(kind),
            sum(count for of, count in zip(kinds, counts, strict=True) if of == kind),
        )
        for kind in (0, 1)
    }
