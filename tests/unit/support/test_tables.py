"""The tables of `tests.support` read as they should, by PyIceberg's own reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat

from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    add_avro_data_file,
    add_orc_file,
    add_parquet_file,
    all_types_rows,
    all_types_schema,
    data_files,
    make_catalog,
    set_name_mapping,
    v3_table_with_defaults,
)

# PyIceberg 0.12 reads null lists and maps of structs as empty ones, and writes them so.
_NULLS_LOST_BY_PYICEBERG = ["points", "by_name"]


def _local(uri: str) -> str:
    return uri.removeprefix("file://")


def _comparable(rows: pa.Table) -> list[str]:
    """Return rows by id in a form in which NaN equals NaN and -0.0 does not equal 0.0."""
    return [repr(row) for row in rows.sort_by("id").to_pylist()]


@pytest.fixture
def catalog(tmp_path: Path):
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return all_types_rows(400, seed=1)


def test_all_types_come_back_from_append(catalog, rows):
    table = catalog.create_table("db.all_types", all_types_schema())
    table.append(rows)
    got = table.scan().to_arrow()
    kept = [name for name in rows.column_names if name not in _NULLS_LOST_BY_PYICEBERG]
    assert _comparable(got.select(kept)) == _comparable(rows.select(kept))


def test_all_types_have_nulls_and_special_values_and_obey_their_seed(rows):
    assert _comparable(rows) == _comparable(all_types_rows(400, seed=1))
    assert _comparable(rows) != _comparable(all_types_rows(400, seed=2))
    assert all(column.null_count for column in rows.columns[1:])
    texts = {repr(value) for value in rows["float"].to_pylist()}
    assert texts >= {"nan", "-0.0", "inf", "-inf"}
    assert any(value == [] for value in rows["points"].to_pylist())


def test_parquet_files_have_the_metrics_that_pyiceberg_would_give_them(catalog, rows):
    ours = catalog.create_table("db.ours", all_types_schema())
    theirs = catalog.create_table("db.theirs", all_types_schema())
    theirs.append(rows)
    written = add_parquet_file(ours, rows, row_group_rows=100)
    (expected,) = data_files(theirs)
    for metric in ("value_counts", "lower_bounds", "upper_bounds"):
        # Lost nulls of lists change what PyIceberg counts below them.
        for field_id, value in getattr(expected, metric).items():
            if field_id < 50 or field_id >= 70:
                assert getattr(written, metric)[field_id] == value, (metric, field_id)
    nans = [repr(value) for value in rows["float"].to_pylist()].count("nan")
    assert written.nan_value_counts[ours.schema().find_field("float").field_id] == nans
    assert len(written.split_offsets) == 4
    assert pq.ParquetFile(_local(written.file_path)).num_row_groups == 4
    assert ours.scan(row_filter="id >= 390").to_arrow().num_rows == 10
    assert not list(ours.scan(row_filter="id >= 400").plan_files())


def test_parquet_files_without_field_ids_need_a_name_mapping(catalog, rows):
    table = catalog.create_table("db.no_ids", all_types_schema())
    written = add_parquet_file(table, rows, field_ids=False)
    schema = pq.read_schema(_local(written.file_path))
    assert all(not field.metadata for field in schema)
    with pytest.raises(ValueError, match="does not have field-ids"):
        table.scan().to_arrow()
    set_name_mapping(table)
    assert table.scan().to_arrow().num_rows == 400


def test_parquet_writer_options_reach_the_file(catalog):
    table = catalog.create_table("db.options", pa.schema([("id", pa.int64())]))
    path = f"{table.location()}/data/with space %.parquet"
    add_parquet_file(
        table,
        pa.table({"id": pa.array([1, 2], pa.int32())}),
        path=path,
        cast=False,
        compression="snappy",
        use_dictionary=False,
    )
    column = pq.ParquetFile(_local(path)).metadata.row_group(0).column(0)
    assert (column.compression, column.has_dictionary_page) == ("SNAPPY", False)
    assert column.physical_type == "INT32"
    assert table.scan().to_arrow()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("field_ids", [True, False])
def test_orc_files_read_back_with_ids_or_a_name_mapping(catalog, rows, field_ids):
    table = catalog.create_table("db.orc", all_types_schema())
    written = rows.drop_columns(["time", "uuid", "fixed"])
    data_file = add_orc_file(table, written, stripe_rows=50, field_ids=field_ids)
    assert orc.ORCFile(_local(data_file.file_path)).nstripes == 8
    if not field_ids:
        set_name_mapping(table)
    kept = [name for name in written.column_names if name not in _NULLS_LOST_BY_PYICEBERG]
    assert _comparable(table.scan().to_arrow().select(kept)) == _comparable(written.select(kept))
    assert not list(table.scan(row_filter="id < 0").plan_files())


def test_avro_data_files_are_refused_by_pyiceberg(catalog):
    table = catalog.create_table("db.avro", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    data_file = add_avro_data_file(table, pa.table({"id": [1, None], "s": ["x", None]}))
    assert data_file.file_format == FileFormat.AVRO
    assert Path(_local(data_file.file_path)).read_bytes().startswith(b"Obj\x01")
    with pytest.raises(ValueError, match="AVRO"):
        table.scan().to_arrow()


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("recipe", EVOLUTIONS.values(), ids=EVOLUTIONS)
def test_evolved_tables_read_as_expected(catalog, recipe, file_format):
    evolved = recipe(catalog, file_format)
    rows = evolved.table.scan().to_arrow().sort_by("id")
    assert rows.column_names == list(evolved.expected[0])
    assert rows.to_pylist() == evolved.expected


@pytest.mark.parametrize("recipe", PARTITIONINGS.values(), ids=PARTITIONINGS)
def test_partitioned_tables_read_as_expected(catalog, recipe):
    partitioned = recipe(catalog)
    table, expected = partitioned.table, partitioned.expected
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    filters = {
        "category = 'red' and id > 20": lambda row: row["category"] == "red" and row["id"] > 20,
        "amount < -15": lambda row: row["amount"] is not None and row["amount"] < -15,
        "day = '2024-02-29'": lambda row: str(row["day"]) == "2024-02-29",
        "category is null": lambda row: row["category"] is None,
    }
    for row_filter, keep in filters.items():
        got = table.scan(row_filter=row_filter).to_arrow().sort_by("id").to_pylist()
        assert got == [row for row in expected if keep(row)], row_filter


def test_partition_filters_skip_files(catalog):
    table = PARTITIONINGS["identity"](catalog).table
    every_file = len(list(table.scan().plan_files()))
    assert 0 < len(list(table.scan(row_filter="category = 'ü'").plan_files())) < every_file


def test_hive_migrated_files_lack_their_partition_columns_and_ids(catalog):
    table = PARTITIONINGS["hive_migrated"](catalog).table
    for data_file in data_files(table):
        schema = pq.read_schema(_local(data_file.file_path))
        assert schema.names == ["id", "at"]
        assert all(not field.metadata for field in schema)


def test_evolved_specs_leave_files_of_every_spec(catalog):
    table = PARTITIONINGS["evolved_spec"](catalog).table
    assert {data_file.spec_id for data_file in data_files(table)} == {0, 1, 2, 3}


def test_rows_of_several_partitions_in_one_file_are_refused(catalog):
    table = PARTITIONINGS["bucket"](catalog).table
    rows = table.scan().to_arrow()
    with pytest.raises(ValueError, match="4 partitions"):
        add_parquet_file(table, rows)


def test_version_3_defaults_fill_older_files(tmp_path):
    evolved = v3_table_with_defaults(tmp_path)
    table = evolved.table
    assert table.format_version == 3
    rows = table.scan().to_arrow().sort_by("id")
    for name, arrow_type in [
        ("at_ns", pa.timestamp("ns")),
        ("at_ns_tz", pa.timestamp("ns", "UTC")),
    ]:
        position = rows.column_names.index(name)
        assert rows.schema.field(name).type == arrow_type
        rows = rows.set_column(position, name, rows[name].cast(pa.int64()))
    assert rows.to_pylist() == evolved.expected
    table.catalog.close()
