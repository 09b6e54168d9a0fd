"""Field ids that are not numbers, and name mappings that are not mappings: typed errors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType

import icestream as ice
from tests.support.tables import commit_files, make_catalog, write_orc_file

_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "place", StructType(NestedField(3, "town", StringType()))),
)
_ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "place": [{"town": "a"}, {"town": "b"}]})
_MAPPING = "schema.name-mapping.default"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = catalog.create_table("db.t", _SCHEMA)
    commit_files(made, [write_orc_file(made, _ROWS, compression="uncompressed")])
    return made


def _read(table: Table) -> list[int]:
    return [i for batch in ice.scan(table, columns=["id"]) for i in batch["id"].to_pylist()]


@pytest.mark.parametrize(
    "stored",
    [b"x", b"", b"1.5", b"1_0", b" 1", b"\xff", b"0x1", b"\xd9\xa1", b"1" * 500, b"\0"],
)
@pytest.mark.parametrize("column", ["id", "town"])
def test_a_damaged_field_id_of_an_orc_file_is_an_error_that_names_the_file(
    table: Table, stored: bytes, column: str
) -> None:
    path = ice.scan(table).splits()[0].path
    ids = {"id": b"1", "place": b"2", "town": b"3", column: stored}
    marks = {name: {b"iceberg.id": stored} for name, stored in ids.items()}
    town = pa.field("town", pa.string(), metadata=marks["town"])
    fields = [
        pa.field("id", pa.int64(), metadata=marks["id"]),
        pa.field("place", pa.struct([town]), metadata=marks["place"]),
    ]
    orc.write_table(_ROWS.cast(pa.schema(fields)), path.removeprefix("file://"))
    with pytest.raises(ice.ProjectionError, match=f"'{column}' has the field id") as caught:
        list(ice.scan(table))
    assert caught.value.path == path
    assert path in str(caught.value)


def test_flipped_bytes_of_an_orc_file_give_rows_or_errors_of_ours(table: Table) -> None:
    path = Path(ice.scan(table).splits()[0].path.removeprefix("file://"))
    whole = path.read_bytes()
    at = whole.index(b"iceberg.id")
    for seed in range(60):
        chosen = random.Random(seed)
        damaged = bytearray(whole)
        for _ in range(chosen.randint(1, 3)):
            damaged[chosen.randrange(at - 20, min(at + 60, len(whole)))] ^= chosen.randint(1, 255)
        path.write_bytes(damaged)
        with suppress(ice.ReadError):
            list(ice.scan(table))


_MALFORMED = [
    "{",
    "[",
    "null",
    "5",
    '"id"',
    "{}",
    '{"field-id": 1, "names": ["id"]}',
    "[1]",
    '["id"]',
    "[null]",
    '[{"field-id": "x", "names": ["id"]}]',
    '[{"field-id": 1}]',
    '[{"field-id": 1, "names": null}]',
    '[{"field-id": 1, "names": "id"}]',
    '[{"field-id": 1, "names": [1]}]',
    '[{"field-id": 1, "names": ["id"], "fields": 5}]',
    '[{"field-id": 1, "names": ["id"], "fields": [{"field-id": 2}]}]',
    "[" * 5000,
]


@pytest.mark.parametrize("mapping", _MALFORMED)
def test_a_malformed_name_mapping_is_an_error_that_names_the_table(
    table: Table, mapping: str
) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({_MAPPING: mapping})
    with pytest.raises(ice.CatalogError, match=rf"{_MAPPING} of db\.t is malformed"):
        _read(table)
    with pytest.raises(ice.CatalogError, match=rf"{_MAPPING} of db\.t is malformed"):
        ice.append(table, pa.table({"id": [1], "new": [1]}), schema_mode="evolve")
    data = Path(table.location().removeprefix("file://")) / "data"
    assert len(list(data.iterdir())) == 1, "what the load wrote is gone"


def test_a_mapping_without_ids_or_fields_is_read(table: Table) -> None:
    mapping = [{"names": ["other"]}, {"field-id": 1, "names": ["id", "key"], "fields": None}]
    with table.transaction() as transaction:
        transaction.set_properties({_MAPPING: json.dumps(mapping)})
    assert _read(table) == [1, 2]
