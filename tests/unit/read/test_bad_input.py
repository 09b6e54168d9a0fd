"""Bad arguments and bad files: a typed error that says what, where and what next; never a guess."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo, GreaterThan, In
from pyiceberg.io.pyarrow import PYARROW_PARQUET_FIELD_ID_KEY
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

import icestream as ice
from tests.support.foreign_files import add_foreign_file
from tests.support.leaks import assert_no_leaks
from tests.support.scans import ids_of
from tests.support.tables import (
    commit_files,
    make_catalog,
    write_orc_file,
    write_parquet_file,
)

_ORDERS = [ice.TaskOrder(), ice.ArrivalOrder(concurrent_streams=4)]
orders = pytest.mark.parametrize("order", _ORDERS, ids=["task", "arrival"])


# Arguments


@pytest.fixture(scope="module")
def orders_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    catalog = make_catalog(tmp_path_factory.mktemp("bad"))
    schema = Schema(
        NestedField(1, "order_id", LongType()),
        NestedField(2, "customer", StringType()),
        NestedField(3, "price", DecimalType(9, 2)),
        NestedField(4, "day", DateType()),
        NestedField(5, "paid", BooleanType()),
        NestedField(6, "address", StructType(NestedField(7, "street", StringType()))),
    )
    yield catalog.create_table("db.orders", schema)
    catalog.close()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["order_id", "custmer"], "there is no column 'custmer': did you mean 'customer'?"),
        (["orderid"], "did you mean 'order_id'?"),
        (["address.stret"], "did you mean 'address.street'?"),
        (["CUSTOMER"], "there is no column 'CUSTOMER'"),
        (["nothing_like_it_at_all"], "it has order_id, customer, price"),
        (["address.street.number"], "there is no column 'address.street.number'"),
    ],
)
def test_an_unknown_column_is_named_with_the_nearest_that_exists(
    orders_table: Table, columns: list[str], message: str
) -> None:
    with pytest.raises(ice.UnknownColumnError) as caught:
        ice.scan(orders_table, columns=columns)
    assert message in str(caught.value)
    assert isinstance(caught.value, ice.InvalidArgumentError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("custmer = 'x'", "did you mean 'customer'?"),
        ("order_id > 3 and adress.street = 'x'", "did you mean 'address.street'?"),
        (EqualTo("Paid", True), "did you mean 'paid'?"),
        (EqualTo("his name, her name", 1), "no column 'his name, her name'"),
    ],
)
def test_an_unknown_column_in_a_filter_is_named(
    orders_table: Table, where: Any, message: str
) -> None:
    with pytest.raises(ice.UnknownColumnError) as caught:
        ice.scan(orders_table, where=where)
    assert message in str(caught.value)
    assert "filter" in str(caught.value)


@pytest.mark.parametrize(
    "where",
    [
        "order_id >",
        "order_id == ",
        "((order_id = 1)",
        "order_id = 1 and",
        "",
        "select * from t",
        "order_id between 1 and",
        "order_id in ()",
        "customer like '%x'",
    ],
)
def test_a_filter_that_can_not_be_parsed_is_refused(orders_table: Table, where: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="can't be parsed") as caught:
        ice.scan(orders_table, where=where)
    assert repr(where) in str(caught.value)


def test_the_error_of_a_filter_shows_where_it_is_wrong_and_how_to_write_one(
    orders_table: Table,
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="'paid' is not a constant") as one:
        ice.scan(orders_table, where="order_id = 1 and price = paid")
    assert str(one.value).endswith("(character 26 of 'order_id = 1 and price = paid')")
    assert one.value.text == "order_id = 1 and price = paid"
    assert one.value.position == 25


def test_the_error_of_a_filter_that_does_not_fit_shows_it_as_it_was_written(
    orders_table: Table,
) -> None:
    with pytest.raises(ice.InvalidArgumentError) as caught:
        ice.scan(orders_table, where="day = 'soon'")
    assert str(caught.value) == (
        "the filter does not fit: 'day' is a date and is compared with 'soon': write a date such "
        "as '2024-01-31' (character 7 of \"day = 'soon'\")"
    )


@pytest.mark.parametrize(
    "where",
    [
        "order_id = 'many'",
        "paid = 'perhaps'",
        "day = '2024-13-01'",
        "price = 'much'",
        GreaterThan("price", Decimal("1.234")),
        EqualTo("price", "not a number"),
        EqualTo("customer", 5),
        EqualTo("address", 5),
        In("day", ["2024-01-01", "soon"]),
        "address.street > 5",
    ],
    ids=str,
)
def test_a_literal_that_does_not_fit_its_column_is_refused(orders_table: Table, where: Any) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="does not fit"):
        ice.scan(orders_table, where=where)


@pytest.mark.parametrize("where", [5, True, ["order_id = 1"], object()])
def test_a_filter_that_is_no_filter_is_refused(orders_table: Table, where: Any) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="where is a"):
        ice.scan(orders_table, where=where)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("batch_size", value) for value in (0, -1, True, False, 1.5, "10")),
        *(("limit", value) for value in (-1, True, False, 1.5, "10")),
        *(("retries", value) for value in (-1, True, 1.5, "3", None)),
        *(("retry_wait_seconds", value) for value in (-0.1,)),
        *(
            ("memory", value)
            for value in (
                0,
                -1,
                True,
                1.5e9,
                None,
                "",
                "MB",
                "many",
                "-5MB",
                "5 XB",
                "1,5GB",
                "64MB/s",
                "1e3MB",
                "0MB",
                "0.1b",
                "nan",
                "inf",
            )
        ),
        ("order", "task"),
        ("order", ice.TaskOrder),
        ("columns", "order_id"),
        ("columns", []),
        ("columns", [None]),
        ("columns", ["order_id", 2]),
        ("columns", 5),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_by_name_before_anything_is_read(
    orders_table: Table, argument: str, value: Any
) -> None:
    with pytest.raises(ice.InvalidArgumentError) as caught:
        ice.scan(orders_table, **{argument: value})
    assert argument in str(caught.value)


@pytest.mark.parametrize("argument", ["concurrent_streams", "batch_size", "max_buffered_batches"])
@pytest.mark.parametrize("value", [0, -1, True, False, 1.5, "8"])
def test_a_bad_bound_of_arrival_order_is_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=argument):
        ice.ArrivalOrder(**{argument: value})


@pytest.mark.parametrize("argument", ["concurrent_streams", "max_buffered_batches"])
def test_a_bound_of_arrival_order_can_not_be_none(argument: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=argument):
        ice.ArrivalOrder(**{argument: None})


# Files


def _make(catalog: Catalog, file_format: str = "parquet", **options: Any) -> Table:
    """Four files of 5,000 rows: enough for several pages and batches in each."""
    table = catalog.create_table(
        "db.files", Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
    )
    written = []
    for number in range(4):
        ids = list(range(number * 5_000, number * 5_000 + 5_000))
        rows = pa.table({"id": ids, "s": [f"row number {i * 7919 % 5_000}" for i in ids]})
        if file_format == "parquet":
            settings = {"data_page_size": 4_096, "use_dictionary": False, **options}
            written.append(write_parquet_file(table, rows, row_group_rows=2_500, **settings))
        else:
            written.append(write_orc_file(table, rows, **options))
    commit_files(table, written)
    return table


def _third(table: Table) -> ice.Split:
    return ice.scan(table).splits()[2]


def _local(split: ice.Split) -> Path:
    return Path(split.path.removeprefix("file://"))


def _cut_the_footer(content: bytes) -> bytes:
    return content[:-20]


def _cut_in_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _lose_the_middle(content: bytes) -> bytes:
    """Bytes are missing among the pages; the footer is whole, and so are the pages' offsets."""
    third = len(content) // 3
    return content[:third] + bytes(64) + content[third + 64 :]


def _shrink_the_middle(content: bytes) -> bytes:
    third = len(content) // 3
    return content[:third] + content[third + 64 :]


def _keep_nothing(content: bytes) -> bytes:
    return b""


def _be_text(content: bytes) -> bytes:
    return b"id,s\n1,this is a CSV file\n" * 100


def _be_short_text(content: bytes) -> bytes:
    return b"PAR1"


def _expect(table: Table, order: Any, kind: type[ice.ReadError], split: ice.Split) -> ice.ReadError:
    """The error comes from iterating, names the file and the split, and leaves nothing behind."""
    delivered = []
    scan = ice.scan(table, order=order, batch_size=700, retries=0)
    with assert_no_leaks(), pytest.raises(kind) as caught:
        delivered.extend(batch.num_rows for batch in scan)
    # As they arrive, all rows of the other files may come before the error.
    assert sum(delivered) < sum(each.rows for each in scan.splits())
    assert caught.value.path == split.path
    assert split.path in str(caught.value)
    assert caught.value.split == split.id
    return caught.value


@orders
@pytest.mark.timeout(60)
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_missing_data_file_is_an_error_that_names_it(
    catalog: Catalog, file_format: str, order: Any
) -> None:
    table = _make(catalog, file_format)
    split = _third(table)
    _local(split).unlink()
    error = _expect(table, order, ice.FileMissingError, split)
    assert "roll the table back" in str(error)


@orders
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "damage",
    [
        _cut_the_footer,
        _cut_in_half,
        _lose_the_middle,
        _shrink_the_middle,
        _keep_nothing,
        _be_text,
        _be_short_text,
    ],
)
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_damaged_data_file_is_an_error_that_names_it(
    catalog: Catalog, file_format: str, damage: Callable[[bytes], bytes], order: Any
) -> None:
    options = {"compression": "gzip"} if file_format == "parquet" else {"compression": "zlib"}
    table = _make(catalog, file_format, **options)
    split = _third(table)
    path = _local(split)
    path.write_bytes(damage(path.read_bytes()))
    _expect(table, order, ice.CorruptFileError, split)


@orders
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip"},
        pytest.param({"compression": "zstd", "write_page_checksum": True}),
        pytest.param({"compression": "none", "write_page_checksum": True}),
    ],
    ids=["gzip", "checksummed zstd", "checksummed plain"],
)
def test_a_flipped_bit_in_any_page_is_found(
    catalog: Catalog, options: dict[str, Any], order: Any
) -> None:
    table = _make(catalog, **options)
    split = _third(table)
    path = _local(split)
    whole = path.read_bytes()
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    generator = random.Random(1)
    for _ in range(8):
        content = bytearray(whole)
        # Beyond the first page's header, within the column's pages.
        place = column.data_page_offset + generator.randrange(64, column.total_compressed_size)
        content[place] ^= 1 << generator.randrange(8)
        path.write_bytes(content)
        _expect(table, order, ice.CorruptFileError, split)


@orders
@pytest.mark.timeout(60)
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_file_of_another_type_under_a_columns_id_is_an_error_that_names_it(
    catalog: Catalog, file_format: Any, order: Any
) -> None:
    table = _make(catalog, file_format)
    rows = pa.table({"id": ["not", "a", "long"], "s": ["x", "y", "z"]})
    file = add_foreign_file(table, rows, file_format=file_format)
    (split,) = [s for s in ice.scan(table).splits() if s.path == file.file_path]
    error = _expect(table, order, ice.ProjectionError, split)
    assert "'id'" in str(error)
    assert "string" in str(error)
    assert "long" in str(error)
    assert len(list(ice.scan(table, columns=["s"], order=order))) > 0


@orders
@pytest.mark.timeout(60)
def test_a_value_that_can_not_be_converted_is_an_error_that_names_the_file(
    catalog: Catalog, order: Any
) -> None:
    table = _make(catalog)
    rows = pa.table({"id": [1], "s": pa.array([b"\xff\xfe not UTF-8"], pa.binary())})
    file = add_foreign_file(table, rows)
    (split,) = [s for s in ice.scan(table).splits() if s.path == file.file_path]
    _expect(table, order, ice.ProjectionError, split)


@orders
@pytest.mark.timeout(60)
def test_a_file_that_holds_fewer_rows_than_the_table_says_is_read_as_it_is(
    catalog: Catalog, order: Any
) -> None:
    """The footer counts, not the manifest: both are the writer's word, and only one is the data."""
    table = _make(catalog)
    path = _local(_third(table))
    field = pa.field("id", pa.int64(), metadata={PYARROW_PARQUET_FIELD_ID_KEY: b"1"})
    pq.write_table(pa.table([pa.array([-1, -2])], schema=pa.schema([field])), path)
    ids = ids_of(ice.scan(table, columns=["id"], order=order))
    assert len(ids) == 15_002
    assert {-1, -2} < set(ids)


@orders
@pytest.mark.timeout(60)
def test_a_file_of_the_other_format_is_an_error(catalog: Catalog, order: Any) -> None:
    table = _make(catalog)
    split = _third(table)
    orc.write_table(pa.table({"id": [1]}), _local(split))
    _expect(table, order, ice.CorruptFileError, split)


@orders
@pytest.mark.timeout(60)
def test_the_error_of_a_scan_comes_once_and_the_next_scan_is_clean(
    catalog: Catalog, order: Any
) -> None:
    table = _make(catalog)
    split = _third(table)
    path = _local(split)
    content = path.read_bytes()
    path.unlink()
    scan = ice.scan(table, order=order)
    iterator = iter(scan)
    with pytest.raises(ice.FileMissingError):
        for _ in iterator:
            pass
    assert next(iterator, None) is None
    assert not scan.report.finished
    path.write_bytes(content)
    assert sorted(ids_of(scan)) == list(range(20_000))
    assert scan.report.finished


@orders
@pytest.mark.timeout(60)
def test_a_directory_in_place_of_a_file_is_an_error(catalog: Catalog, order: Any) -> None:
    table = _make(catalog)
    split = _third(table)
    _local(split).unlink()
    _local(split).mkdir()
    _expect(table, order, ice.ReadError, split)
