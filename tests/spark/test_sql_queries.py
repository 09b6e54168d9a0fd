"""`ice_spark.sql` finds the rows that DuckDB finds in the same tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream
import icestream.spark as ice_spark
from tests.support.tables import make_catalog

_DAY = date(2026, 1, 1)
_MOMENT = datetime(2026, 1, 1)


def _orders() -> pa.Table:
    rows = [
        {
            "id": n,
            "customer": n % 7 if n % 11 else None,
            "region": ["north", "south", "east", None][n % 4],
            "price": float("nan") if n % 50 == 49 else n / 4,
            "cost": Decimal(n * 5) / 100,
            "day": _DAY + timedelta(days=n % 30),
            "moment": _MOMENT + timedelta(hours=n),
            "open": [True, False, None][n % 3],
            "address": {"city": f"city {n % 5}", "zip": n % 100},
        }
        for n in range(200)
    ]
    address = pa.struct([("city", pa.string()), ("zip", pa.int32())])
    return pa.Table.from_pylist(
        rows,
        schema=pa.schema(
            [
                ("id", pa.int64()),
                ("customer", pa.int32()),
                ("region", pa.string()),
                ("price", pa.float64()),
                ("cost", pa.decimal128(10, 2)),
                ("day", pa.date32()),
                ("moment", pa.timestamp("us")),
                ("open", pa.bool_()),
                ("address", address),
            ]
        ),
    )


def _customers() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(5), pa.int32()),
            "name": [f"name {n}" for n in range(5)],
            "region": ["north", None, "east", "west", "south"],
        }
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    """A catalog `test` with `db.orders`, in four files, and `db.customers`."""
    catalog = make_catalog(tmp_path_factory.mktemp("shop"))
    rows = _orders()
    orders = catalog.create_table("db.orders", rows.schema)
    for start in range(0, 200, 50):
        orders.append(rows.slice(start, 50))
    catalog.create_table("db.customers", _customers().schema).append(_customers())
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def duck() -> Iterator[Any]:
    """DuckDB with the same tables."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA db")
        for name, rows in (("orders", _orders()), ("customers", _customers())):
            connection.register("given", rows)
            connection.execute(f"CREATE TABLE db.{name} AS SELECT * FROM given")
            connection.unregister("given")
        yield connection


def _plain(rows: list[Any]) -> list[str]:
    def value(each: Any) -> Any:
        if hasattr(each, "asDict"):
            return each.asDict()
        return repr(float(each)) if isinstance(each, (int, float, Decimal)) else each

    return sorted(str([value(each) for each in row]) for row in rows)


# Statements that mean the same in Spark and in DuckDB.
QUERIES = [
    "SELECT * FROM db.orders",
    "SELECT id, price FROM db.orders WHERE id > 150",
    "SELECT id FROM db.orders WHERE 150 < id",
    "SELECT id FROM db.orders o WHERE o.id BETWEEN 20 AND 30 AND NOT o.open",
    "SELECT id FROM db.orders WHERE NOT (id BETWEEN 5 AND 190)",
    "SELECT db.orders.id FROM db.orders WHERE orders.region = 'north'",
    "SELECT id FROM db.orders WHERE region <> 'north'",
    "SELECT id FROM db.orders WHERE NOT (region = 'north' OR customer = 3)",
    "SELECT id FROM db.orders WHERE region IS NULL AND customer IS NOT NULL",
    "SELECT id FROM db.orders WHERE region IN ('north', 'east') AND id NOT IN (4, 8, 12)",
    "SELECT id FROM db.orders WHERE id NOT IN (4, NULL)",
    "SELECT id FROM db.orders WHERE region LIKE 'no%' OR region LIKE '%st'",
    "SELECT id FROM db.orders WHERE region IS DISTINCT FROM 'north'",
    "SELECT id FROM db.orders WHERE price > 40.25",
    "SELECT id FROM db.orders WHERE price > 40 AND price < 45",
    "SELECT id FROM db.orders WHERE cost = 1.5 OR cost >= 9.955",
    "SELECT id FROM db.orders WHERE day >= DATE '2026-01-20' AND day <> DATE '2026-01-22'",
    "SELECT id FROM db.orders WHERE moment > TIMESTAMP '2026-01-05 12:00:00'",
    "SELECT id FROM db.orders WHERE moment < '2026-01-02'",
    "SELECT id FROM db.orders WHERE open",
    "SELECT id FROM db.orders WHERE open IS NOT TRUE",
    "SELECT id FROM db.orders WHERE id = -1 OR id = 7",
    "SELECT id FROM db.orders WHERE id % 2 = 0 AND id < 10",
    "SELECT id, address.city FROM db.orders WHERE address.zip < 5",
    "SELECT o.address.zip FROM db.orders AS o WHERE o.address.city = 'city 1'",
    "SELECT count(*) FROM db.orders",
    "SELECT region, count(*), sum(cost) FROM db.orders GROUP BY region HAVING count(*) > 1",
    "SELECT region AS r, max(id) FROM db.orders WHERE id < 50 GROUP BY 1 ORDER BY 2 LIMIT 2",
    "SELECT o.id, c.name FROM db.orders o JOIN db.customers c ON o.customer = c.id",
    "SELECT o.id, c.name FROM db.orders o, db.customers c WHERE o.customer = c.id AND c.id > 2",
    "SELECT o.id, c.name FROM db.orders o LEFT JOIN db.customers c ON o.customer = c.id "
    "AND c.name = 'name 2' WHERE o.id < 40",
    "SELECT o.id FROM db.orders o LEFT JOIN db.customers c ON o.customer = c.id "
    "WHERE c.name IS NULL AND o.id < 60",
    "SELECT o.id FROM db.orders o LEFT JOIN db.customers c ON o.customer = c.id AND o.id > 100",
    "SELECT o.id, c.id FROM db.orders o RIGHT JOIN db.customers c ON o.customer = c.id "
    "AND o.id < 10 WHERE c.id > 1",
    "SELECT o.id, c.id FROM db.orders o RIGHT JOIN db.customers c ON o.id = c.id * 100 "
    "WHERE o.id IS NULL OR o.id > 0",
    "SELECT o.id, c.id FROM db.orders o FULL JOIN db.customers c ON o.id = c.id + 198 "
    "WHERE c.id IS NULL OR c.id > 2",
    "SELECT name, region FROM db.customers JOIN (SELECT region FROM db.orders WHERE id = 2) "
    "USING (region)",
    "SELECT a.id FROM db.orders a JOIN db.orders b ON a.id = b.id + 1 WHERE b.id IN (3, 5)",
    "SELECT id FROM db.orders o WHERE EXISTS (SELECT * FROM db.customers c WHERE c.id = o.customer "
    "AND c.name = 'name 1')",
    "SELECT id FROM db.orders WHERE customer NOT IN (SELECT id FROM db.customers WHERE id < 4)",
    "SELECT name FROM db.customers WHERE id IN (SELECT customer FROM db.orders WHERE id < 3)",
    "SELECT (SELECT max(price) FROM db.orders WHERE id < 40) AS top, name FROM db.customers",
    "WITH north AS (SELECT * FROM db.orders WHERE region = 'north'), "
    "names AS (SELECT id AS key, name FROM db.customers) "
    "SELECT n.id, names.name FROM north n JOIN names ON n.customer = names.key WHERE n.id > 100",
    "WITH orders AS (SELECT 1 AS id) SELECT id FROM orders UNION ALL SELECT id FROM db.customers",
    "SELECT id FROM db.orders WHERE id < 5 UNION SELECT id FROM db.customers WHERE id > 2",
    "SELECT id FROM db.customers EXCEPT SELECT customer FROM db.orders WHERE id > 195",
    "SELECT id, row_number() OVER (PARTITION BY region ORDER BY id) FROM db.orders WHERE id < 20",
    "SELECT '{not a frame}', id FROM db.customers -- FROM db.nothing\n WHERE id = 1 /* } */",
    "SELECT `o`.`id` FROM `db`.`orders` AS `o` WHERE `o`.`region` = 'it''s' OR `id` = 3",
    "SELECT CASE WHEN id > 3 THEN 'more' ELSE region END FROM db.customers",
    "SELECT c.* FROM db.customers c JOIN db.orders o ON c.id = o.id WHERE o.price >= 0.5",
    "SELECT * FROM (SELECT id, name FROM db.customers) AS x WHERE x.id = 1",
    "(SELECT id FROM db.customers) ORDER BY id",
    "SELECT count(DISTINCT region) FROM db.orders WHERE ID >= 10 AND Region = 'east'",
]


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_finds_the_rows_that_duckdb_finds(
    spark: Any, shop: SqlCatalog, duck: Any, text: str
) -> None:
    frame = ice_spark.sql(text, spark=spark, catalog=shop)
    same = text.replace("`", '"')
    expected = duck.execute(same).fetchall()
    assert expected or "''" in text or "NULL)" in text
    assert _plain(frame.collect()) == _plain(expected)


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of each read."""
    calls: list[dict[str, Any]] = []
    read = ice_spark.read

    def noted(spark: Any, table: Any, **arguments: Any) -> Any:
        calls.append({"table": table.name()[-1], **arguments})
        return read(spark, table, **arguments)

    monkeypatch.setattr(ice_spark, "read", noted)
    return calls


@pytest.mark.parametrize(
    ("text", "columns", "where"),
    [
        ("SELECT id FROM db.orders WHERE region = 'north'", ["id", "region"], "EqualTo"),
        ("SELECT count(*) FROM db.orders", ["open"], "None"),
        ("SELECT * FROM db.orders WHERE id > 3", None, "GreaterThan"),
        ("SELECT id FROM db.orders WHERE id % 2 = 0", ["id"], "None"),
        ("SELECT id FROM db.orders WHERE moment < '2026-01-02'", ["id", "moment"], "LessThan"),
        ("SELECT id FROM db.orders WHERE region = 5", ["id", "region"], "None"),
        ("SELECT id FROM db.orders WHERE id = 5 OR price > rand()", ["id", "price"], "None"),
        ("SELECT id FROM db.orders TABLESAMPLE (5 ROWS) WHERE id = 5", ["id"], "None"),
        ("SELECT o.id FROM db.orders o LATERAL VIEW explode(array(1)) e AS x WHERE o.id = 5",
         ["id"], "EqualTo"),
        ("SELECT id FROM db.orders LATERAL VIEW explode(array(1)) e AS x WHERE x = 5",
         ["id"], "None"),
    ],
)  # fmt: skip
def test_a_query_reads_only_the_columns_and_files_that_it_needs(
    spark: Any,
    shop: SqlCatalog,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    columns: list[str] | None,
    where: str,
) -> None:
    calls = _reads(monkeypatch)
    ice_spark.sql(text, spark=spark, catalog=shop)
    assert calls[0].get("columns") == columns
    assert where in repr(calls[0]["where"])


def test_each_table_of_a_join_gets_its_own_columns_and_filters(
    spark: Any, shop: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _reads(monkeypatch)
    ice_spark.sql(
        "SELECT o.price, c.name FROM db.orders o LEFT JOIN db.customers c "
        "ON o.customer = c.id AND c.name = 'x' AND o.open WHERE o.region = 'east' AND c.id > 3",
        spark=spark,
        catalog=shop,
    )
    orders, customers = calls
    assert orders["columns"] == ["customer", "region", "price", "open"]
    assert "region" in repr(orders["where"])
    assert "open" not in repr(orders["where"])
    assert customers["columns"] == ["id", "name"]
    assert "name" in repr(customers["where"])
    assert "id" not in repr(customers["where"])


def test_a_name_may_start_with_its_catalog(spark: Any, shop: SqlCatalog) -> None:
    text = f"SELECT {shop.name}.db.customers.id FROM {shop.name}.db.customers"
    assert ice_spark.sql(text, spark=spark, catalog=shop).count() == 5


def test_views_of_spark_come_first_and_can_be_joined(spark: Any, shop: SqlCatalog) -> None:
    spark.range(3, 9).createOrReplaceTempView("wanted")
    spark.range(3).createOrReplaceGlobalTempView("few")
    try:
        text = "SELECT c.id FROM db.customers c JOIN wanted USING (id)"
        assert ice_spark.sql(text, spark=spark, catalog=shop).count() == 2
        assert (
            ice_spark.sql("SELECT * FROM global_temp.few", spark=spark, catalog=shop).count() == 3
        )
    finally:
        spark.catalog.dropTempView("wanted")
        spark.catalog.dropGlobalTempView("few")


def test_no_view_is_left_behind(spark: Any, shop: SqlCatalog) -> None:
    before = spark.catalog.listTables()
    frame = ice_spark.sql("SELECT id FROM db.customers", spark=spark, catalog=shop)
    assert spark.catalog.listTables() == before
    assert frame.count() == 5
    with pytest.raises(icestream.InvalidArgumentError):
        ice_spark.sql("SELECT nothing FROM db.customers", spark=spark, catalog=shop)
    assert spark.catalog.listTables() == before


def test_metadata_columns_are_read_when_they_are_named(spark: Any, shop: SqlCatalog) -> None:
    text = "SELECT count(DISTINCT _file), max(_pos) FROM db.orders"
    [row] = ice_spark.sql(text, spark=spark, catalog=shop).collect()
    assert tuple(row) == (4, 49)
    with pytest.raises(icestream.InvalidArgumentError, match="_file next to a star"):
        ice_spark.sql("SELECT *, _file FROM db.orders", spark=spark, catalog=shop)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEC 1", "the statement SELEC"),
        ("SELECT FROM WHERE", "can't be parsed"),
        ("SELECT 'x", "can't be parsed"),
        ("", "is empty"),
        ("SELECT 1; SELECT 2", "several statements"),
        ("ALTER TABLE db.orders ADD COLUMN x INT", "the statement ALTER TABLE"),
        ("CALL system.rewrite_data_files('db.t')", "the statement CALL"),
        ("SHOW TABLES IN db", "the statement SHOW TABLES: it runs queries, INSERT, DELETE"),
        ("SELECT IDENTIFIER('id') FROM db.orders", r"IDENTIFIER\(\.\.\.\)"),
        ("FROM db.orders |> SELECT id", "pipe syntax"),
        ("SELECT '${x}' FROM db.orders", r"\$\{\.\.\.\}"),
        ("SELECT nothing FROM db.orders", "nothing"),
        ("SELECT id FROM db.orders VERSION AS OF 'nope'", "no branch or tag 'nope'"),
        ("SELECT id FROM db.orders VERSION AS OF 5", "no snapshot 5"),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(
    spark: Any, shop: SqlCatalog, text: str, message: str
) -> None:
    with pytest.raises(icestream.InvalidArgumentError, match=message) as caught:
        ice_spark.sql(text, spark=spark, catalog=shop)
    assert "\n" not in str(caught.value)


def test_a_table_that_does_not_exist_is_named(spark: Any, shop: SqlCatalog) -> None:
    with pytest.raises(icestream.CatalogError, match=r"there is no table 'db\.nothing'"):
        ice_spark.sql("SELECT * FROM db.nothing", spark=spark, catalog=shop)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("current_date", "d"),
        ("current_timestamp", "t"),
        ("current_user", "u"),
        ("session_user", "s"),
        ("string(date_trunc(unit, TIMESTAMP '2026-02-03 04:05:06'))", "2026-01-01 00:00:00"),
    ],
)
def test_a_column_with_the_name_of_a_function_is_read(
    spark: Any, catalog: SqlCatalog, expression: str, value: str
) -> None:
    rows = pa.table(
        {
            "id": [1],
            "current_date": ["d"],
            "current_timestamp": ["t"],
            "current_user": ["u"],
            "session_user": ["s"],
            "unit": ["year"],
        }
    )
    catalog.create_table("db.words", rows.schema).append(rows)
    text = f"SELECT {expression} AS value FROM db.words WHERE id = 1"
    assert ice_spark.sql(text, spark=spark, catalog=catalog).collect() == [(value,)]


def test_a_struct_may_have_the_name_of_the_namespace(spark: Any, catalog: SqlCatalog) -> None:
    rows = pa.table({"id": [1], "db": [{"s": {"id": 5, "x": 6}}]})
    catalog.create_table("db.s", rows.schema).append(rows)
    text = "SELECT db.s AS a, db.s.x AS b, db.s.id AS c, db.s.db.s.x AS d FROM db.s"
    [row] = ice_spark.sql(text, spark=spark, catalog=catalog).collect()
    assert (row.a.asDict(), *row[1:]) == ({"id": 5, "x": 6}, 6, 1, 6)
