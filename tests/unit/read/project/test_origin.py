"""Metadata columns: each row says which file it is from, and where it is in it."""

from __future__ import annotations

import pickle
from datetime import date

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.tables import add_orc_file, add_parquet_file, data_file_paths

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "day", DateType()),
)
FILE_AND_POSITION = ["_file", "_pos"]


def _rows(start: int, stop: int, *, day: date = date(2024, 1, 1), s: str | None = None) -> pa.Table:
    ids = range(start, stop)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "s": [s or f"row {i}" for i in ids],
            "day": pa.array([day] * len(ids), pa.date32()),
        }
    )


def _ids_in_file(path: str) -> list[int]:
    plain = path.removeprefix("file://")
    read = orc.read_table if plain.endswith(".orc") else pq.read_table
    ids: list[int] = read(plain, columns=["id"])["id"].to_pylist()
    return ids


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Files of several row groups or stripes, Parquet and ORC, with deleted positions in each."""
    table = catalog.create_table("db.t", SCHEMA)
    add_parquet_file(table, _rows(0, 1000), row_group_rows=70)
    add_orc_file(table, _rows(1000, 2000), stripe_rows=90)
    add_parquet_file(table, _rows(2000, 2010))
    commit_position_deletes(
        table, {path: [0, 3, *range(60, 80), 9] for path in data_file_paths(table)[:2]}
    )
    return table


@pytest.mark.parametrize("where", [None, "id >= 75 and id < 1500", "s = 'row 444'", "id > 2005"])
@pytest.mark.parametrize("columns", [None, ["s"], ["id"]])
def test_each_row_is_at_its_position_in_its_file(
    table: Table, where: str | None, columns: list[str] | None
) -> None:
    scan = ice.scan(table, where=where, columns=columns, metadata_columns=FILE_AND_POSITION)
    rows = scan.to_reader().read_all()
    assert rows.schema == scan.schema
    ids = {path: _ids_in_file(path) for path in data_file_paths(table)}
    at = [
        ids[path][place]
        for path, place in zip(rows["_file"].to_pylist(), rows["_pos"].to_pylist(), strict=True)
    ]
    expected = table.scan(**({"row_filter": where} if where else {})).to_arrow()
    assert sorted(at) == sorted(expected["id"].to_pylist())
    named = "id" if columns == ["id"] else "s"
    assert rows[named].to_pylist() == [i if named == "id" else f"row {i}" for i in at]


def test_positions_are_right_in_splits_of_a_file_that_travelled(table: Table) -> None:
    splits = ice.scan(table, metadata_columns=FILE_AND_POSITION, columns=["id"]).splits(1000)
    assert len(splits) > 5
    found = []
    for split in splits:
        share = ice.read_splits([pickle.loads(pickle.dumps(split))]).to_reader().read_all()
        found += zip(*(share[n].to_pylist() for n in ("id", *FILE_AND_POSITION)), strict=True)
    assert len(found) == 2010 - 2 * 23
    assert all(_ids_in_file(path)[place] == i for i, path, place in found[::97])


def test_partition_is_the_union_of_all_specs_fields(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    ice.append(table, _rows(0, 3))
    with table.update_spec() as update:
        update.add_field("s", IdentityTransform(), "s")
    ice.append(table, _rows(10, 12, s="a"))
    with table.update_spec() as update:
        update.remove_field("s")
        update.add_field("day", DayTransform(), "on_day")
        update.add_field("id", BucketTransform(4), "part")
    ice.append(table, _rows(34, 35, day=date(2024, 5, 6)))
    scan = ice.scan(
        table, columns=["id"], metadata_columns=["_spec_id", "_partition"], where="id != 0"
    )
    assert scan.schema.names == ["id", "_spec_id", "_partition"]
    rows = sorted(scan.to_reader().read_all().to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["_spec_id"]) for row in rows] == [
        (1, 0), (2, 0), (10, 1), (11, 1), (34, 2)
    ]  # fmt: skip
    empty = {"on_day": None, "part": None, "s": None}
    assert rows[0]["_partition"] == empty
    assert rows[2]["_partition"] == empty | {"s": "a"}
    assert rows[4]["_partition"] == empty | {"on_day": date(2024, 5, 6), "part": 3}


def test_a_partition_column_that_was_dropped_is_still_told(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    with table.update_spec() as update:
        update.add_identity("s")
    ice.append(table, _rows(0, 1, s="a"))
    with table.update_spec() as update:
        update.remove_field("s")
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("s")
    [row] = ice.scan(table, metadata_columns=["_partition"]).to_reader().read_all().to_pylist()
    assert row["_partition"] == {"s": "a"}


def test_metadata_columns_that_do_not_fit_are_refused(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", Schema(NestedField(1, "_pos", LongType())))
    with pytest.raises(ice.InvalidArgumentError, match="was never partitioned"):
        ice.scan(table, metadata_columns=["_partition"])
    with pytest.raises(
        ice.InvalidArgumentError, match="'_row': the metadata columns are _file, _pos"
    ):
        ice.scan(table, metadata_columns=["_row"])
    with pytest.raises(ice.InvalidArgumentError, match="a column named '_pos'"):
        ice.scan(table, metadata_columns=["_pos"])
    with pytest.raises(ice.InvalidArgumentError, match="duplicates: _file, _file"):
        ice.scan(table, metadata_columns=["_file", "_file"])
    with pytest.raises(ice.InvalidArgumentError, match="give a list"):
        ice.scan(table, metadata_columns="_file")
