"""What PyIceberg, Polars and Daft write is read with the same rows, and written on.

DuckDB writes to tables of REST catalogs only, so it is not among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, StructType

import icestream as ice
from tests.support.partitions import partition_rows, partition_schema
from tests.support.peer_process import PeerProcess
from tests.support.plain_rows import differences, plain_rows
from tests.support.tables import all_types_rows, all_types_schema, make_catalog
from tests.support.write_peers import WRITERS

_HERE = ("pyiceberg", "polars")
_PEERS = ("polars", "daft")
_every_engine = pytest.mark.parametrize(
    "write",
    [
        *_HERE,
        *(
            pytest.param(f"peers/{engine}", marks=[pytest.mark.interop, pytest.mark.timeout(600)])
            for engine in _PEERS
        ),
    ],
    indirect=True,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def peers() -> Iterator[PeerProcess]:
    with PeerProcess() as process:
        yield process


class _Write:
    """Writes rows to a table with one engine."""

    def __init__(self, engine: str, write: Callable[[Table, pa.Table, str], None]) -> None:
        self.engine = engine
        self._write = write

    def __call__(self, table: Table, rows: pa.Table, mode: str = "append") -> None:
        self._write(table, rows, mode)
        table.refresh()

    def can_write(self, kind: IcebergType) -> bool:
        """PyIceberg 0.12 makes empty ones of lists and maps of structs that are null."""
        inner = getattr(kind, "element_type", getattr(kind, "value_type", None))
        return self.engine != "pyiceberg" or not isinstance(inner, StructType)


@pytest.fixture
def write(request: pytest.FixtureRequest, tmp_path: Path) -> _Write:
    place, _, engine = request.param.rpartition("/")
    if not place:
        return _Write(engine, WRITERS[engine])
    process = request.getfixturevalue("peers")
    catalog = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }

    def there(table: Table, rows: pa.Table, mode: str) -> None:
        process.write(engine, catalog, ".".join(table.name()), rows, mode)

    return _Write(engine, there)


def _read(table: Table) -> list[dict[str, Any]]:
    rows = pa.Table.from_batches(ice.scan(table), schema=ice.scan(table).schema)
    return plain_rows(rows, table.schema())


@_every_engine
@pytest.mark.parametrize("version", ["1", "2"])
def test_every_type_is_read_and_written_on(catalog, write, version):
    schema = Schema(*(f for f in all_types_schema().fields if write.can_write(f.field_type)))
    rows = all_types_rows(300).select([field.name for field in schema.fields])
    table = catalog.create_table("db.t", schema, properties={"format-version": version})
    write(table, rows.slice(0, 100))
    ice.append(table, rows.slice(100, 100))
    write(table, rows.slice(200))
    assert differences(_read(table), plain_rows(rows, schema)) == []


@_every_engine
def test_partitions_are_read_and_replaced(catalog, write):
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "category"))
    table = catalog.create_table("db.t", partition_schema(), partition_spec=spec)
    arrow = schema_to_pyarrow(partition_schema(), include_field_ids=False)
    rows = partition_rows(0, 60)
    write(table, pa.Table.from_pylist(rows[:30], schema=arrow))
    write(table, pa.Table.from_pylist(rows[30:], schema=arrow))
    assert differences(_read(table), rows) == []
    red = [{**row, "id": row["id"] + 100} for row in rows if row["category"] == "red"]
    ice.overwrite(table, pa.Table.from_pylist(red, schema=arrow), partitions="dynamic")
    ice.delete(table, "id = 2")
    expected = [row for row in rows if row["category"] != "red" and row["id"] != 2] + red
    assert differences(_read(table), expected) == []


@_every_engine
def test_a_table_that_was_overwritten_is_read(catalog, write):
    table = catalog.create_table("db.t", partition_schema())
    arrow = schema_to_pyarrow(partition_schema(), include_field_ids=False)
    ice.append(table, pa.Table.from_pylist(partition_rows(0, 10), schema=arrow))
    write(table, pa.Table.from_pylist(partition_rows(10, 20), schema=arrow), "overwrite")
    assert differences(_read(table), partition_rows(10, 20)) == []
    ice.overwrite(
        table, pa.Table.from_pylist(partition_rows(20, 25), schema=arrow), where="id > 15"
    )
    assert differences(_read(table), [*partition_rows(10, 16), *partition_rows(20, 25)]) == []
