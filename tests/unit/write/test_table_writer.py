"""The writer of a table: any stream in, data files of the right kind out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.errors import SchemaMismatchError, UnsupportedFeatureError, WriterClosedError
from icestream.memory.budget import MemoryBudget
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.table_writer import TableWriter, Written
from icestream.write.target import WriteTarget
from tests.support.leaks import assert_no_leaks
from tests.support.writing import Parts, read_back

_SCHEMA = Schema(
    NestedField(1, "place", LongType(), required=False),
    NestedField(2, "number", LongType(), required=True),
)
_BY_PLACE = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "place"))
_BY_NUMBER = SortOrder(SortField(2, IdentityTransform()))


def _table(
    catalog: SqlCatalog,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    order: SortOrder = UNSORTED_SORT_ORDER,
) -> Table:
    return catalog.create_table("db.t", _SCHEMA, partition_spec=spec, sort_order=order)


def _writer(
    table: Table, schema: pa.Schema, mode: SchemaMode = "freeze", memory: str = "16MB"
) -> TableWriter:
    target, budget = WriteTarget.of(table), MemoryBudget(memory)
    return TableWriter(target, arrow_schema=schema, schema_mode=mode, budget=budget)


def _rows(places: list[int], numbers: list[int | None]) -> pa.RecordBatch:
    return pa.record_batch({"place": places, "number": numbers})


@pytest.mark.parametrize(
    ("spec", "order", "expected"),
    [
        (UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, [((), [5, 2, 9, 1])]),
        (_BY_PLACE, UNSORTED_SORT_ORDER, [((7,), [5, 9]), ((3,), [2, 1])]),
        (UNPARTITIONED_PARTITION_SPEC, _BY_NUMBER, [((), [1, 2, 5, 9])]),
        (_BY_PLACE, _BY_NUMBER, [((7,), [5, 9]), ((3,), [1, 2])]),
    ],
)
def test_spec_and_sort_order_decide_what_is_in_which_file(catalog, spec, order, expected) -> None:
    rows = _rows([7, 3, 7, 3], [5, 2, 9, 1])
    with assert_no_leaks():
        writer = _writer(_table(catalog, spec, order), rows.schema)
        writer.write(rows)
        written = writer.close()
    contents = [
        (file.partition, read_back([file]).column("number").to_pylist()) for file in written.files
    ]
    assert contents == expected
    assert (written.rows, written.bytes_spilled) == (4, 0)
    assert written.bytes == sum(file.bytes for file in written.files)
    assert all(bool(file.sort_order_id) is bool(order.fields) for file in written.files)


def test_bytes_that_were_spilled_are_told(catalog: SqlCatalog) -> None:
    numbers = np.random.default_rng(1).integers(0, 10**9, 100_000)
    rows = pa.record_batch({"place": numbers % 5, "number": numbers})
    writer = _writer(_table(catalog, order=_BY_NUMBER), rows.schema, memory="2MB")
    writer.write(rows)
    written = writer.close()
    assert written.bytes_spilled > 0
    assert read_back(written.files).column("number").to_pylist() == sorted(numbers.tolist())


def test_a_stream_that_does_not_fit_is_refused_before_anything_is_written(catalog) -> None:
    table = _table(catalog)
    with pytest.raises(SchemaMismatchError, match="'number' is string"):
        _writer(table, pa.schema([("place", pa.int64()), ("number", pa.string())]))
    assert Parts(table).data_files() == []


def test_evolving_writes_files_of_the_new_schema_and_notes_nulls(catalog: SqlCatalog) -> None:
    rows = pa.record_batch({"number": [1, None], "new": ["a", "b"]})
    writer = _writer(_table(catalog), rows.schema, "evolve")
    writer.write(rows)
    written = writer.close()
    assert writer.target.schema.find_field("new").field_id == 3
    assert written.loosened == {2}
    assert read_back(written.files).column("new").to_pylist() == ["a", "b"]


def test_abort_leaves_no_file_and_ends_the_writer(catalog: SqlCatalog) -> None:
    table = _table(catalog, _BY_PLACE)
    rows = _rows([1, 2], [1, 2])
    with assert_no_leaks():
        writer = _writer(table, rows.schema)
        writer.write(rows)
        writer.abort()
        writer.abort()
    assert Parts(table).data_files() == []
    for call in (lambda: writer.write(rows), writer.close):
        with pytest.raises(WriterClosedError):
            call()


def test_nothing_written_is_no_file(catalog: SqlCatalog) -> None:
    rows = _rows([1], [1])
    writer = _writer(_table(catalog), rows.schema)
    writer.write(rows.slice(0, 0))
    assert writer.close() == Written()


def test_a_table_of_version_3_is_refused(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    metadata = table.metadata.model_copy(update={"format_version": 3})
    table.metadata = metadata
    with pytest.raises(UnsupportedFeatureError, match="has format version 3"):
        _writer(table, pa.schema([("number", pa.int64())]))


def test_parts_of_a_write_add_up(catalog: SqlCatalog) -> None:
    rows = _rows([1], [1])
    table = _table(catalog)

    def parts() -> Iterator[Written]:
        for _ in range(2):
            writer = _writer(table, rows.schema)
            writer.write(rows)
            yield writer.close()

    first, second = parts()
    both = Written.joined([first, second])
    assert both == Written.of([*first.files, *second.files])
    assert both.rows == 2
