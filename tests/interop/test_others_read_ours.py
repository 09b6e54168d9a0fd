"""What icestream writes is read with the same rows by PyIceberg, Polars, DuckDB and Daft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from tests.interop.written_tables import CODECS, RECIPES, TRANSFORMS, Writing, WrittenTable
from tests.support.peer_process import PeerError, PeerProcess
from tests.support.plain_rows import Row, differences, plain_rows
from tests.support.tables import make_catalog
from tests.support.write_peers import READERS

# Those of the tests' own environment, and those of the peers'.
_HERE = ("pyiceberg", "polars")
_PEERS = ("polars", "duckdb", "daft")
_every_engine = pytest.mark.parametrize(
    "reader",
    [
        *_HERE,
        *(
            pytest.param(f"peers/{engine}", marks=[pytest.mark.interop, pytest.mark.timeout(600)])
            for engine in _PEERS
        ),
    ],
    indirect=True,
)


_COMPARED = (
    "id",
    "boolean",
    "int",
    "long",
    "decimal9",
    "decimal38",
    "date",
    "timestamp",
    "string",
    "binary",
)


@dataclass(frozen=True, slots=True)
class Reader:
    """An engine that reads tables."""

    name: str
    read: Callable[..., pa.Table]

    def rows(self, table: WrittenTable) -> list[Row]:
        """Plain rows of a table."""
        return plain_rows(self.read(table.metadata, table.snapshot_id), table.schema)

    def find(self, table: WrittenTable, column: str, value: Any) -> list[Row]:
        """The ids of the rows with a value, and that value."""
        found = self.read(table.metadata, table.snapshot_id, (column, value))
        return plain_rows(found, table.schema.select(*{"id", column}))

    def expected(self, table: WrittenTable) -> list[Row]:
        """The table's rows, as they are or as the engine is known to give them."""
        if self.name != "pyiceberg":
            return table.rows
        return [_as_pyiceberg_reads(row, table.schema) for row in table.rows]

    def can_read_partitions_of(self, column: str, transform: str) -> bool:
        """Daft 0.7 can't read tables with uuids as partition values, whoever wrote them."""
        return not (self.name == "daft" and column == "uuid" and transform in ("identity", "void"))

    def can_find(self, column: str, transform: str, value: Any) -> bool:
        """Whether it computes the partition of a value as the specification says.

        DuckDB 1.5 rounds months and days before 1970 up, and fails on truncated decimals. Daft 0.7
        rounds hours before 1970 up, and hashes some decimals otherwise.
        """
        rounded_up = {"duckdb": ("month", "day"), "daft": ("hour",)}.get(self.name, ())
        if column == "timestamp" and transform in rounded_up:
            return value.year >= 1970
        other_decimals = {"duckdb": "truncate", "daft": "bucket"}.get(self.name)
        return not (column.startswith("decimal") and transform == other_decimals)


def _as_pyiceberg_reads(row: Row, schema: Schema) -> Row:
    """PyIceberg 0.12 reads lists and maps of structs that are null as empty ones."""
    return {
        field.name: []
        if row[field.name] is None and _holds_structs(field.field_type)
        else row[field.name]
        for field in schema.fields
    }


def _holds_structs(kind: IcebergType) -> bool:
    return (isinstance(kind, ListType) and isinstance(kind.element_type, StructType)) or (
        isinstance(kind, MapType) and isinstance(kind.value_type, StructType)
    )


@pytest.fixture(scope="module", params=[1, 2], ids=["v1", "v2"])
def writing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Writing]:
    """Tables of both format versions."""
    yield from _writing(request.param, tmp_path_factory)


@pytest.fixture(
    scope="module", params=[pytest.param(1, marks=pytest.mark.interop), 2], ids=["v1", "v2"]
)
def much_writing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Writing]:
    """The same for tests of many tables: those of version 1 only where the peers are."""
    yield from _writing(request.param, tmp_path_factory)


def _writing(version: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writing]:
    catalog = make_catalog(tmp_path_factory.mktemp("written"))
    yield Writing(catalog, version)
    catalog.close()


@pytest.fixture(scope="module")
def peers() -> Iterator[PeerProcess]:
    with PeerProcess() as process:
        yield process


@pytest.fixture
def reader(request: pytest.FixtureRequest) -> Reader:
    place, _, engine = request.param.rpartition("/")
    if not place:
        return Reader(engine, READERS[engine])
    process = request.getfixturevalue("peers")
    return Reader(engine, lambda *of_table: process.read(engine, *of_table))


@_every_engine
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_table_is_read_with_the_same_rows(writing, reader, recipe):
    table = writing.table(recipe)
    assert differences(reader.rows(table), reader.expected(table)) == []


@_every_engine
@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_is_read_with_the_same_rows(much_writing, reader, codec):
    table = much_writing.compressed(codec)
    assert differences(reader.rows(table), reader.expected(table)) == []


@pytest.mark.slow
@_every_engine
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_partitions_of_every_type_are_read_with_the_same_rows(much_writing, reader, transform):
    tables = much_writing.transformed(transform)
    assert tables
    for column, table in tables.items():
        if reader.can_read_partitions_of(column, transform):
            assert (column, differences(reader.rows(table), reader.expected(table))) == (column, [])
        else:
            with pytest.raises(PeerError, match="Cannot cast UUID"):
                reader.rows(table)


@pytest.mark.slow
@_every_engine
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_rows_are_found_by_the_value_of_the_partitioned_column(much_writing, reader, transform):
    """Engines skip files by partition values and by bounds, so both must be right."""
    for column, table in much_writing.transformed(transform).items():
        for value in _values(table, column):
            if reader.can_find(column, transform, value):
                expected = [
                    {name: row[name] for name in {"id", column}}
                    for row in table.rows
                    if row[column] == value
                ]
                found = reader.find(table, column, value)
                assert (column, differences(found, expected)) == (column, [])


def _values(table: WrittenTable, column: str) -> list[Any]:
    """Some of a column's values, if it has a type that compares in all engines."""
    if column not in _COMPARED:
        return []
    values = sorted({row[column] for row in table.rows if row[column] is not None})
    return values[:: max(1, len(values) // 3)]
