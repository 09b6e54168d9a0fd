"""Bad input: an error of a type, which says what, where and what next; and nothing is left behind.

Each case goes through every call that takes a stream. Before it fails, a stream hands over enough
rows for files to be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import Transform, TruncateTransform
from pyiceberg.types import (
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

import icestream as ice
from tests.support.stored import folder_of, stored_files
from tests.support.tables import create_v3_table, make_catalog

# A list of structs would hide where a value is: the names are what messages are looked through for.
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "small", IntegerType()),
    NestedField(3, "ratio", FloatType()),
    NestedField(4, "price", DecimalType(9, 2)),
    NestedField(5, "day", DateType()),
    NestedField(6, "clock", TimeType()),
    NestedField(7, "at", TimestampType()),
    NestedField(8, "zoned", TimestamptzType()),
    NestedField(9, "text", StringType()),
    NestedField(10, "numbers", ListType(11, LongType(), element_required=True)),
)
_FILE_ROWS = 20_000
_VERBS: dict[str, Callable[..., Any]] = {
    "append": ice.append,
    "overwrite": ice.overwrite,
    "overwrite where": lambda table, source, **more: ice.overwrite(
        table, source, where="id < 100", **more
    ),
    "write_files": ice.write_files,
}
_every_verb = pytest.mark.parametrize("verb", _VERBS.values(), ids=_VERBS.keys())


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return _make(catalog)


def _make(catalog: SqlCatalog, transform: Transform[Any, Any] | None = None, **more: Any) -> Table:
    """A table with rows in it, and files that roll early."""
    spec = UNPARTITIONED_PARTITION_SPEC
    if transform:
        spec = PartitionSpec(PartitionField(1, 1000, transform, "part"))
    properties = {
        "write.target-file-size-bytes": "20000",
        "write.parquet.row-group-size-bytes": "50000",
    }
    table = catalog.create_table("db.t", _SCHEMA, partition_spec=spec, properties=properties)
    ice.append(table, _good_rows(3))
    with table.update_schema() as update:
        update.add_column("note", StringType())
    if more:
        with table.transaction() as change:
            change.set_properties(more)
    return table


def _good_rows(rows: int) -> pa.Table:
    return pa.table({"id": pa.array(range(rows), pa.int64())})


@contextmanager
def _unchanged(table: Table, *, exists: bool = True) -> Iterator[None]:
    """Check that the body leaves the table and its folder as they are."""
    folder = folder_of(table)
    files, location = stored_files(folder), table.metadata_location
    yield
    assert stored_files(folder) == files
    if exists:
        assert table.refresh().metadata_location == location
        assert table.scan().to_arrow()["id"].to_pylist() == [0, 1, 2]


@dataclass(frozen=True, slots=True)
class Bad:
    """Columns that can't be written as they are.

    Attributes:
        columns: The columns, beside an `id` where there is none among them.
        error: What is raised.
        words: What the message must say.
        options: More arguments of the call.
    """

    columns: dict[str, pa.Array]
    error: type[ice.IcestreamError]
    words: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)

    def rows(self) -> pa.Table:
        rows = len(next(iter(self.columns.values())))
        return pa.table({"id": pa.array(range(rows), pa.int64()), **self.columns})


_MISMATCHES = {
    "text for a number": Bad(
        {"small": pa.array(["1"])},
        ice.SchemaMismatchError,
        ("'small'", "string", "int", "db.t", "change the stream"),
    ),
    "a number for text": Bad(
        {"text": pa.array([1])}, ice.SchemaMismatchError, ("'text'", "int64", "string", "db.t")
    ),
    "a struct for a number": Bad(
        {"small": pa.array([{"a": 1}])}, ice.SchemaMismatchError, ("'small'", "struct", "int")
    ),
    "a text in a list of numbers": Bad(
        {"numbers": pa.array([["x"]])},
        ice.SchemaMismatchError,
        ("'numbers.element'", "string", "long"),
    ),
    "long for int": Bad(
        {"small": pa.array([2**40])}, ice.SchemaMismatchError, ("'small'", "int64", "int", "evolve")
    ),
    "double, NaN, for int": Bad(
        {"small": pa.array([float("nan")])},
        ice.SchemaMismatchError,
        ("'small'", "double", "int", "change the stream"),
    ),
    "double for float": Bad(
        {"ratio": pa.array([1e300])}, ice.SchemaMismatchError, ("'ratio'", "double", "float")
    ),
    "a wider decimal": Bad(
        {"price": pa.array([Decimal("12345678901.00")], pa.decimal128(20, 2))},
        ice.SchemaMismatchError,
        ("'price'", "decimal", "(20, 2)", "(9, 2)"),
    ),
    "a decimal of another scale": Bad(
        {"price": pa.array([Decimal("1.005")], pa.decimal128(9, 3))},
        ice.SchemaMismatchError,
        ("'price'", "(9, 3)", "(9, 2)"),
    ),
    "a time without zone for one with": Bad(
        {"zoned": pa.array([datetime(2024, 1, 1)], pa.timestamp("us"))},
        ice.SchemaMismatchError,
        ("'zoned'", "timestamp", "timestamptz", "zone"),
    ),
    "a time with zone for one without": Bad(
        {"at": pa.array([0], pa.timestamp("us", "Europe/Berlin"))},
        ice.SchemaMismatchError,
        ("'at'", "timestamp", "zone"),
    ),
    "nanoseconds": Bad(
        {"at": pa.array([1], pa.timestamp("ns"))},
        ice.SchemaMismatchError,
        ("'at'", "ns", "downcast-ns-timestamp-to-us-on-write"),
    ),
    "a type that Iceberg does not have": Bad(
        {"small": pa.array([(1, 2, 3)], pa.month_day_nano_interval())},
        ice.SchemaMismatchError,
        ("'small'", "interval"),
    ),
    "an unknown column": Bad(
        {"other": pa.array([1])},
        ice.SchemaMismatchError,
        ("'other'", "db.t", "evolve", "discard"),
    ),
}


@_every_verb
@pytest.mark.parametrize("bad", _MISMATCHES.values(), ids=_MISMATCHES.keys())
def test_a_stream_that_does_not_fit_is_refused_before_anything_is_written(table, verb, bad):
    with _unchanged(table), pytest.raises(bad.error) as caught:
        verb(table, _must_not_be_read(bad.rows().schema))
    _says(caught.value, *bad.words)
    assert caught.value.differences


def _must_not_be_read(schema: pa.Schema) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        raise AssertionError("a stream that does not fit must not be read")
        yield

    return pa.RecordBatchReader.from_batches(schema, batches())


def _says(error: BaseException, *words: str) -> None:
    message = str(error)
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"


@_every_verb
def test_every_difference_is_listed_at_once(table, verb):
    rows = pa.table({"small": ["x"], "other": [1], "text": [2.5]})
    with _unchanged(table), pytest.raises(ice.SchemaMismatchError) as caught:
        verb(table, rows)
    _says(caught.value, "'small'", "'other'", "'text'", "'id'", "required")
    assert len(caught.value.differences) == 4


@pytest.mark.parametrize(
    ("verb", "mode"),
    [(verb, mode) for verb in _VERBS.values() for mode in ("freeze", "discard")]
    + [(verb, "evolve") for verb in _VERBS.values() if verb is not ice.write_files],
)
def test_an_unsafe_change_is_refused_in_every_mode(table, verb, mode):
    rows = pa.table({"id": [1], "small": ["x"]})
    with _unchanged(table), pytest.raises(ice.SchemaMismatchError) as caught:
        verb(table, rows, schema_mode=mode)
    _says(caught.value, "'small'", "string", "int")


@_every_verb
def test_two_columns_of_one_name_are_refused(table, verb):
    rows = pa.table([[1], ["a"], ["b"]], names=["id", "text", "text"])
    with _unchanged(table), pytest.raises(ice.SchemaMismatchError) as caught:
        verb(table, rows)
    _says(caught.value, "'text'", "rename")


_VALUES = {
    "an unsigned number beyond long": Bad(
        {"id": pa.array([1, 2**63], pa.uint64())},
        ice.InvalidDataError,
        ("'id'", "9223372036854775808", "not in range", "db.t", "row"),
    ),
    "a null in a required column": Bad(
        {"id": pa.array([1, None, None], pa.int64())},
        ice.InvalidDataError,
        ("'id'", "2", "null", "required", "db.t"),
    ),
    "a null in a list of required elements": Bad(
        {"numbers": pa.array([[1, None]], pa.list_(pa.int64()))},
        ice.InvalidDataError,
        ("'numbers.element'", "null"),
    ),
    "a time finer than microseconds": Bad(
        {"clock": pa.array([1], pa.time64("ns"))}, ice.InvalidDataError, ("'clock'", "us", "lose")
    ),
    "a date with a time of day": Bad(
        {"day": pa.array([1], pa.date64())}, ice.InvalidDataError, ("'day'",)
    ),
    "a moment beyond microseconds": Bad(
        {"at": pa.array([2**62], pa.timestamp("s"))}, ice.InvalidDataError, ("'at'",)
    ),
}


@_every_verb
@pytest.mark.parametrize("bad", _VALUES.values(), ids=_VALUES.keys())
def test_a_value_that_can_not_be_stored_is_refused_after_files_were_written(table, verb, bad):
    rows = bad.rows()
    with _unchanged(table), pytest.raises(bad.error) as caught:
        verb(table, _after_files(table, rows))
    _says(caught.value, *bad.words)
    assert f"'{caught.value.column}'" in bad.words


def _after_files(table: Table, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Good rows until data files are on the disk, then others of the same schema."""
    generator = np.random.default_rng(5)
    good = {"id": pa.array(generator.integers(0, 2**62, _FILE_ROWS), rows.schema.field("id").type)}
    for name in rows.column_names[1:]:
        good[name] = pa.nulls(_FILE_ROWS, rows.schema.field(name).type)
    before = _data_files(table)
    for _ in range(100):
        yield from pa.table(good, schema=rows.schema).to_batches()
        if _data_files(table) > before:
            break
    else:
        raise AssertionError("no file was under way: this shows nothing")
    yield from rows.to_batches()


def _data_files(table: Table) -> set[str]:
    return {path for path in stored_files(folder_of(table)) if path.endswith(".parquet")}


@_every_verb
def test_a_stream_that_changes_its_schema_midway_is_refused(table, verb):
    other = pa.table({"id": [1], "text": ["x"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _after_files(table, _good_rows(1))
        yield from other.to_batches()

    with _unchanged(table), pytest.raises(ice.SchemaMismatchError) as caught:
        verb(table, batches())
    _says(caught.value, "batch ", "'text'", "schema")


@_every_verb
def test_what_a_stream_raises_comes_through_as_it_is(table, verb):
    failure = RuntimeError("the source broke")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from _after_files(table, _good_rows(1))
        raise failure

    with _unchanged(table), pytest.raises(RuntimeError) as caught:
        verb(table, batches())
    assert caught.value is failure


@_every_verb
def test_a_partition_value_out_of_range_is_refused(catalog, verb):
    table = _make(catalog, TruncateTransform(1000))
    lowest = pa.table({"id": pa.array([5, -(2**63)], pa.int64())})
    with _unchanged(table), pytest.raises(ice.InvalidDataError) as caught:
        verb(table, lowest)
    _says(caught.value, "'id'", "-9223372036854775808", "truncate[1000]", "out of range")


_COMMITS = {name: verb for name, verb in _VERBS.items() if name != "write_files"}
_COMMITS["delete"] = lambda table, source, **more: ice.delete(table, "id = 1", **more)
_COMMITS["commit_files"] = lambda table, source, **more: ice.commit_files(table, [], **more)
_every_commit = pytest.mark.parametrize("verb", _COMMITS.values(), ids=_COMMITS.keys())


@_every_commit
def test_a_branch_that_does_not_exist_is_refused(table, verb):
    with _unchanged(table), pytest.raises(ice.InvalidArgumentError) as caught:
        verb(table, _good_rows(1), branch="nowhere")
    _says(caught.value, "'nowhere'", "db.t", "create_branch")


@_every_commit
def test_a_tag_is_no_branch(table, verb):
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()
    with _unchanged(table), pytest.raises(ice.InvalidArgumentError) as caught:
        verb(table, _good_rows(1), branch="v1")
    _says(caught.value, "'v1'", "tag", "db.t", "branch")


@_every_commit
def test_a_table_that_was_dropped_is_refused(catalog, table, verb):
    catalog.drop_table("db.t")
    with _unchanged(table, exists=False), pytest.raises(ice.CatalogError) as caught:
        verb(table, _good_rows(1))
    _says(caught.value, "db.t", "does not exist")


@_every_commit
@pytest.mark.parametrize("thing", [7, ["db.t"], None], ids=repr)
def test_something_that_is_neither_a_table_nor_a_name_is_refused(verb, thing):
    with pytest.raises(ice.InvalidArgumentError) as caught:
        verb(thing, _good_rows(1))
    _says(caught.value, type(thing).__name__, "Table")


def test_something_that_is_neither_a_table_nor_a_name_is_refused_for_files_too():
    with pytest.raises(ice.InvalidArgumentError) as caught:
        ice.write_files(7, _good_rows(1))
    _says(caught.value, "int", "Table")


@pytest.mark.parametrize(
    "verb", [*_COMMITS.values(), ice.write_files], ids=[*_COMMITS.keys(), "write_files"]
)
def test_format_version_3_is_refused(catalog, verb):
    table = create_v3_table(catalog, "db.v3", _SCHEMA)
    files = stored_files(folder_of(table))
    with pytest.raises(ice.UnsupportedFeatureError) as caught:
        verb(table, _good_rows(1))
    _says(caught.value, "db.v3", "version 3", "format-version 2")
    assert stored_files(folder_of(table)) == files


_NO_STREAMS = {
    "a path": ("rows.parquet", ("str", "dataset")),
    "rows as dicts": ([{"id": 1}], ("dict", "from_pylist")),
    "nothing": (None, ("NoneType",)),
    "a number": (7, ("int",)),
    "a column": (pa.array([1]), ("named columns",)),
    "a function that wants something": (lambda path: path, ("arguments",)),
}


@_every_verb
@pytest.mark.parametrize(("source", "words"), _NO_STREAMS.values(), ids=_NO_STREAMS.keys())
def test_what_is_no_stream_is_refused_with_what_to_pass_instead(table, verb, source, words):
    with _unchanged(table), pytest.raises(ice.InvalidArgumentError) as caught:
        verb(table, source)
    _says(caught.value, *words)


_OPTIONS = {
    "memory": ({"memory": "lots"}, ice.InvalidArgumentError, ("lots", "memory")),
    "too little memory": (
        {"memory": "10kB"},
        ice.MemoryBudgetError,
        ("10 kB", "raise memory to 3.2 MB"),
    ),
    "schema_mode": (
        {"schema_mode": "anything"},
        ice.InvalidArgumentError,
        ("'anything'", "freeze"),
    ),
}


@_every_verb
@pytest.mark.parametrize(("options", "error", "words"), _OPTIONS.values(), ids=_OPTIONS.keys())
def test_bad_options_are_refused(table, verb, options, error, words):
    with _unchanged(table), pytest.raises(error) as caught:
        verb(table, _good_rows(_FILE_ROWS), **options)
    _says(caught.value, *words)


_COMMIT_OPTIONS = {
    "load_id": ({"load_id": " "}, ("load_id", "non-empty")),
    "properties": ({"properties": {"a": 1}}, ("properties", "'a'", "strings")),
}


@_every_commit
@pytest.mark.parametrize(("options", "words"), _COMMIT_OPTIONS.values(), ids=_COMMIT_OPTIONS.keys())
def test_bad_options_of_a_commit_are_refused(table, verb, options, words):
    with _unchanged(table), pytest.raises(ice.InvalidArgumentError) as caught:
        verb(table, _good_rows(1), **options)
    _says(caught.value, *words)


_FILTERS = {
    "an unknown column": ("nope = 1", ice.UnknownColumnError, ("filter", "'nope'", "'note'")),
    "no filter": ("id ===", ice.InvalidArgumentError, ("id ===",)),
    "another type": ("id = 'x'", ice.InvalidArgumentError, ("id", "x")),
}


_FILTERED: dict[str, Callable[..., Any]] = {
    "overwrite": lambda table, where: ice.overwrite(table, _good_rows(1), where=where),
    "delete": ice.delete,
}


@pytest.mark.parametrize("verb", _FILTERED.values(), ids=_FILTERED.keys())
@pytest.mark.parametrize(("where", "error", "words"), _FILTERS.values(), ids=_FILTERS.keys())
def test_a_bad_filter_is_refused(table, verb, where, error, words):
    with _unchanged(table), pytest.raises(error) as caught:
        verb(table, where)
    _says(caught.value, *words)


def test_partitions_of_a_table_without_any_are_refused(table):
    with _unchanged(table), pytest.raises(ice.InvalidArgumentError) as caught:
        ice.overwrite(table, _good_rows(1), partitions="dynamic")
    _says(caught.value, "db.t", "not partitioned", "where=")


_PROPERTIES = {
    "another format": ("write.format.default", "orc", ice.UnsupportedFeatureError, "parquet"),
    "a size": ("write.target-file-size-bytes", "big", ice.InvalidArgumentError, "1 or more"),
    "a codec": ("write.parquet.compression-codec", "zip", ice.InvalidArgumentError, "zstd"),
    "a metrics mode": (
        "write.metadata.metrics.default",
        "some",
        ice.InvalidArgumentError,
        "truncate",
    ),
}


@_every_verb
@pytest.mark.parametrize(
    ("name", "value", "error", "word"), _PROPERTIES.values(), ids=_PROPERTIES.keys()
)
def test_a_bad_table_property_is_named(catalog, verb, name, value, error, word):
    table = _make(catalog, **{name: value})
    with _unchanged(table), pytest.raises(error) as caught:
        verb(table, _good_rows(1))
    _says(caught.value, value.rpartition(".")[2], word)


@_every_verb
def test_a_location_that_can_not_be_written_is_named(catalog, verb, tmp_path):
    """The data goes below a file, where not even root can make a folder."""
    (tmp_path / "file").write_text("")
    table = _make(catalog, **{"write.data.path": f"file://{tmp_path}/file/data"})
    with _unchanged(table), pytest.raises(ice.WriteError) as caught:
        verb(table, _good_rows(1))
    _says(caught.value, f"{tmp_path}/file/data")
    assert caught.value.path.startswith(f"file://{tmp_path}/file/data")
