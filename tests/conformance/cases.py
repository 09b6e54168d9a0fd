"""What every engine must do alike: rows, snapshots, reports and errors.

A class of tests with a fixture `engine` inherits them, see `test_in_process.py`.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType

import icestream as ice
from tests.conformance.engines import Engine
from tests.support.loads import BY_PART, make_table, ordered, snapshots_of
from tests.support.merges import MODES, Row, filled, nothing_in_vain, stream
from tests.support.tables import data_files

_A = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
_B = [(11, 2, "k"), (12, 2, "l")]
_NAMES = ["id", "part", "text"]
_MOMENT = dt.datetime(2024, 5, 1, 12, 0, 0, 123_456)
_TYPED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "flag": (pa.bool_(), [True, False, None]),
    "small": (pa.int32(), [-(2**31), 2**31 - 1, None]),
    "float": (pa.float32(), [-0.0, float("nan"), None]),
    "double": (pa.float64(), [float("-inf"), 1e-300, None]),
    "price": (pa.decimal128(20, 4), [Decimal("-1.0001"), Decimal("9999999999999999.9999"), None]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "at": (pa.timestamp("us"), [_MOMENT, _MOMENT - dt.timedelta(days=40_000), None]),
    "at_utc": (pa.timestamp("us", tz="UTC"), [_MOMENT.replace(tzinfo=dt.UTC)] * 2 + [None]),
    "text": (pa.string(), ["", "\U0001f9ca\0x", None]),
    "bytes": (pa.binary(), [b"", b"\0\xff", None]),
    "many": (pa.list_(pa.int64()), [[], [1, None], None]),
    "map": (pa.map_(pa.string(), pa.float64()), [[], [("a", 1.5), ("b", None)], None]),
    "who": (
        pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))]),
        [{"name": None, "tags": ["x"]}, {"name": "n", "tags": None}, None],
    ),
}


def _typed_rows() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in _TYPED.items()})


def _rows(found: pa.Table) -> list[Row]:
    return ordered(tuple(row.values()) for row in found.to_pylist())


def _texts(found: pa.Table) -> list[str]:
    """Rows as text, where NaN equals NaN and 0.0 does not equal -0.0."""
    return sorted(repr(row) for row in found.to_pylist())


def _stored(table: Table) -> list[Row]:
    """As PyIceberg reads it, with no part of ours."""
    return _rows(table.refresh().scan().to_arrow())


class Cases:
    """The suite."""

    def test_values_of_every_type_come_back(self, engine: Engine, catalog: SqlCatalog) -> None:
        rows = _typed_rows()
        table = catalog.create_table("db.typed", rows.schema)
        report = engine.write("append", catalog, "db.typed", rows)
        assert (report.operation, report.rows_inserted) == ("append", 3)
        assert snapshots_of(table) == [report.snapshot_id]
        assert _texts(table.scan().to_arrow()) == _texts(rows)
        assert _texts(engine.read(catalog, "db.typed")) == _texts(rows)
        assert nothing_in_vain(table)

    def test_filters_columns_and_older_snapshots_are_read(
        self, engine: Engine, catalog: SqlCatalog
    ) -> None:
        table = filled(catalog, _A, _B, spec=BY_PART)
        first = snapshots_of(table)[0]
        with table.update_schema() as update:
            update.rename_column("text", "words")
            update.add_column("more", IntegerType())
        ice.merge(table, stream_of_words([(1, "A")]), on="id", write_mode="merge-on-read")
        found = engine.read(catalog, "db.t")
        assert found.column_names == ["id", "part", "words", "more"]
        assert _rows(found)[0] == (1, 1, "A", None)
        assert len(found) == 5
        some = engine.read(catalog, "db.t", where="id > 2 and part < 9", columns=["words", "id"])
        assert _rows(some) == [("c", 3), ("k", 11), ("l", 12)]  # in the order of the names
        assert _rows(engine.read(catalog, "db.t", snapshot_id=first)) == _A
        assert len(engine.read(catalog, "db.t", where="id > 100")) == 0

    def test_rows_go_to_the_partitions_that_iceberg_wants(
        self, engine: Engine, catalog: SqlCatalog
    ) -> None:
        schema = Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "name", StringType(), required=False),
            NestedField(3, "at", TimestampType(), required=False),
        )
        spec = PartitionSpec(
            PartitionField(2, 1000, BucketTransform(3), "bucket"),
            PartitionField(3, 1001, DayTransform(), "day"),
        )
        rows = pa.table(
            {
                "id": pa.array(range(40), pa.int64()),
                "name": [f"name {n % 7}" if n % 7 else None for n in range(40)],
                "at": pa.array([_MOMENT - dt.timedelta(days=n % 3) for n in range(40)]),
            },
            pa.schema(
                [pa.field("id", pa.int64(), False), ("name", "str"), ("at", _TYPED["at"][0])]
            ),
        )
        tables = [catalog.create_table(f"db.{n}", schema, partition_spec=spec) for n in ("a", "b")]
        ice.append(tables[1], rows)
        engine.write("append", catalog, "db.a", rows)
        ours, theirs = ({_partition(file) for file in data_files(t.refresh())} for t in tables)
        assert ours == theirs
        assert _stored(tables[0]) == _stored(tables[1])

    def test_rows_are_replaced_all_by_filter_or_by_partition(
        self, engine: Engine, catalog: SqlCatalog
    ) -> None:
        table = filled(catalog, [*_A, *_B], spec=BY_PART)
        report = engine.write("overwrite", catalog, "db.t", stream([(9, 2, "x")]), where="id >= 12")
        assert (report.rows_inserted, report.rows_deleted) == (1, 1)
        assert _stored(table) == [*_A, (9, 2, "x"), (11, 2, "k")]
        engine.write("overwrite", catalog, "db.t", stream([(1, 1, "z")]), partitions="dynamic")
        assert _stored(table) == [(1, 1, "z"), (9, 2, "x"), (11, 2, "k")]
        report = engine.write("overwrite", catalog, "db.t", stream([(5, 5, "all")]))
        assert (report.rows_deleted, _stored(table)) == (3, [(5, 5, "all")])
        assert len(snapshots_of(table)) == 4
        assert nothing_in_vain(table)

    def test_new_columns_are_refused_dropped_or_added(
        self, engine: Engine, catalog: SqlCatalog
    ) -> None:
        table = filled(catalog, _A)
        rows = stream(_B, extra=pa.array([1.5, None]))
        with pytest.raises(ice.SchemaMismatchError, match="extra"):
            engine.write("append", catalog, "db.t", rows)
        report = engine.write("append", catalog, "db.t", rows, schema_mode="discard")
        assert report.columns_discarded == ("extra",)
        report = engine.write("append", catalog, "db.t", rows, schema_mode="evolve")
        assert report.schema_changes == ("add column 'extra' double",)
        assert len(snapshots_of(table)) == 3
        assert _rows(engine.read(catalog, "db.t", where="extra > 1")) == [(11, 2, "k", 1.5)]

    def test_a_load_happens_once_and_to_its_branch(
        self, engine: Engine, catalog: SqlCatalog
    ) -> None:
        table = filled(catalog, _A)
        table.manage_snapshots().create_branch(snapshots_of(table)[0], "audit").commit()
        options = {"branch": "audit", "load_id": "monday", "properties": {"by": "me"}}
        first = engine.write("append", catalog, "db.t", stream(_B), **options)
        again = engine.write("append", catalog, "db.t", stream(_B), **options)
        assert (first.already_committed, again.already_committed) == (False, True)
        assert (again.snapshot_id, again.rows_inserted) == (first.snapshot_id, 2)
        assert _rows(engine.read(catalog, "db.t", branch="audit")) == [*_A, *_B]
        assert _rows(engine.read(catalog, "db.t")) == _A
        assert table.refresh().snapshot_by_name("audit").summary["by"] == "me"

    @pytest.mark.parametrize("mode", MODES)
    def test_rows_are_merged(self, engine: Engine, catalog: SqlCatalog, mode: str) -> None:
        table = filled(catalog, _A, _B, [(21, 3, "q")])
        rows = [(2, 5, "B"), (3, 1, "c"), (4, 6, "d"), (12, 0, ""), (2, 4, "no")]
        given = stream(rows, at=pa.array([2, 1, 1, 1, 1]), op=pa.array(["U", "U", "I", "D", "U"]))
        report = engine.write(
            "merge",
            catalog,
            "db.t",
            given,
            on="id",
            delete_when="op = 'D'",
            on_duplicate="last",
            last_by="at",
            write_mode=mode,
        )
        expected = [(1, 1, "a"), (2, 5, "B"), (3, 1, "c"), (4, 6, "d"), (11, 2, "k"), (21, 3, "q")]
        assert _rows(engine.read(catalog, "db.t")) == _stored(table) == expected
        counts = (report.rows_inserted, report.rows_updated, report.rows_deleted)
        assert counts == (1, 1, 1)
        assert (report.rows_unchanged, report.rows_superseded) == (1, 1)
        on_read = mode == "merge-on-read"
        assert (report.write_mode, report.files_removed) == (mode, 0 if on_read else 2)
        assert len(snapshots_of(table)) == 4
        assert nothing_in_vain(table)

    def test_rows_that_can_not_be_stored_or_merged_are_refused(
        self, engine: Engine, catalog: SqlCatalog
    ) -> None:
        schema = Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "part", LongType(), required=False),
            NestedField(3, "text", StringType(), required=False),
        )
        strict = catalog.create_table("db.strict", schema)
        table = filled(catalog, _A)
        with pytest.raises(ice.InvalidDataError) as refusal:
            engine.write("append", catalog, "db.strict", stream([(1, 1, "a"), (None, 2, "b")]))
        assert refusal.value.column == "id"
        with pytest.raises(ice.DuplicateKeysError) as refused:
            engine.write("merge", catalog, "db.t", stream([_A[0], _A[0]]), on="id")
        assert refused.value.examples == ("id = 1",)
        with pytest.raises(ice.InvalidDataError, match=r"null in the(ir)? key"):
            engine.write("merge", catalog, "db.t", stream([(None, 1, "a")]), on="id")
        with pytest.raises((ice.CatalogError, NoSuchTableError), match=r"db\.nope|nope"):
            engine.read(catalog, "db.nope")
        assert (snapshots_of(strict), _stored(table)) == ([], _A)
        assert nothing_in_vain(strict)
        assert nothing_in_vain(table)

    def test_no_rows_are_no_snapshot(self, engine: Engine, catalog: SqlCatalog) -> None:
        table = make_table(catalog)
        assert engine.write("append", catalog, "db.t", stream([])).snapshot_id is None
        assert engine.write("merge", catalog, "db.t", stream([]), on="id").snapshot_id is None
        found = engine.read(catalog, "db.t")
        assert (len(found), found.column_names) == (0, _NAMES)
        assert snapshots_of(table) == []
        assert nothing_in_vain(table)


def stream_of_words(rows: list[tuple[int, str]]) -> pa.Table:
    """Rows of id and words."""
    return pa.table({"id": [row[0] for row in rows], "words": [row[1] for row in rows]})


def _partition(file: Any) -> tuple[Any, ...]:
    return tuple(file.partition[n] for n in range(len(file.partition)))
