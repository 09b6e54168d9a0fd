"""DELETE, UPDATE, MERGE, CREATE TABLE and DROP TABLE of `ice_spark.sql`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream
import icestream.spark as ice_spark

ROWS = [
    {"id": n, "name": f"n{n}" if n % 3 else None, "price": n / 2, "count": n} for n in range(10)
]
SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("count", pa.int32())]
)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = catalog.create_table("db.t", SCHEMA)
    made.append(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    return made


def _rows(table: Table) -> list[dict[str, Any]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: str(row["id"]))


def _run(spark: Any, catalog: SqlCatalog, text: str) -> Any:
    return ice_spark.sql(text, spark=spark, catalog=catalog)


@pytest.mark.parametrize(
    ("condition", "deletes"),
    [
        ("WHERE id > 6", lambda r: r["id"] > 6),
        ("AS x WHERE x.id IN (1, 2) OR x.name = 'n8'", lambda r: r["id"] in (1, 2, 8)),
        ("WHERE NOT (name = 'n1' OR price > 2)", lambda r: r["id"] in (2, 4)),
        ("WHERE name IS NULL AND NOT id = 3", lambda r: r["id"] in (0, 6, 9)),
        ("WHERE id = 5L OR id > CAST(7 AS BIGINT) OR id < -5L", lambda r: r["id"] in (5, 8, 9)),
        ("t WHERE t.price BETWEEN 1 AND 2.5", lambda r: 1 <= r["price"] <= 2.5),
        ("", lambda r: True),
    ],
)
def test_a_delete_removes_the_rows_for_which_its_condition_is_true(
    spark: Any, catalog: SqlCatalog, table: Table, condition: str, deletes: Any
) -> None:
    report = _run(spark, catalog, f"DELETE FROM db.t {condition}")
    assert report.rows_deleted == sum(map(deletes, ROWS))
    assert _rows(table) == [row for row in ROWS if not deletes(row)]


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("UPDATE db.t SET price = price * 2 WHERE id > 6",
         lambda r: {"price": r["price"] * 2} if r["id"] > 6 else {}),
        ("UPDATE db.t AS x SET x.name = concat(x.name, '!'), count = 0 WHERE x.id = 1 OR x.id = 3",
         lambda r: {"name": (r["name"] and "n1!"), "count": 0} if r["id"] in (1, 3) else {}),
        ("UPDATE db.t SET count = 7 WHERE id % 2 = 0 AND id < 5",
         lambda r: {"count": 7} if r["id"] in (0, 2, 4) else {}),
        ("UPDATE db.t SET name = CASE WHEN id > 3 THEN 'big' ELSE name END",
         lambda r: {"name": "big"} if r["id"] > 3 else {}),
    ],
)  # fmt: skip
def test_an_update_sets_columns_of_the_rows_for_which_its_condition_is_true(
    spark: Any, catalog: SqlCatalog, table: Table, text: str, changed: Any
) -> None:
    _run(spark, catalog, text)
    assert _rows(table) == [{**row, **changed(row)} for row in ROWS]


SOURCE = [
    {"key": 2, "op": "U", "price": 20.0},
    {"key": 3, "op": "D", "price": 30.0},
    {"key": 12, "op": "U", "price": 120.0},
    {"key": 13, "op": "I", "price": None},
    {"key": None, "op": "I", "price": 1.0},
]


@pytest.fixture
def changes(catalog: SqlCatalog) -> Table:
    schema = pa.schema([("key", pa.int32()), ("op", pa.string()), ("price", pa.float64())])
    made = catalog.create_table("db.changes", schema)
    made.append(pa.Table.from_pylist(SOURCE, schema=schema))
    return made


_NEW = {"name": None, "count": None}

# The statement; the new values of a matching row (None: it is deleted); those of a new row.
MERGES = [
    ("USING db.changes s ON t.id = s.key WHEN MATCHED THEN UPDATE SET price = s.price "
     "WHEN NOT MATCHED THEN INSERT (id, price) VALUES (s.key, s.price)",
     lambda r, s: {"price": s["price"]}, lambda s: {"price": s["price"]}),
    ("USING db.changes AS s ON s.key = t.id WHEN MATCHED AND s.op = 'D' THEN DELETE "
     "WHEN MATCHED THEN UPDATE SET t.price = s.price + 1, name = op",
     lambda r, s: None if s["op"] == "D" else {"price": s["price"] + 1, "name": s["op"]},
     lambda s: None),
    ("USING db.changes s ON t.id = s.key WHEN MATCHED AND s.op = 'D' THEN DELETE "
     "WHEN MATCHED THEN UPDATE SET price = s.price, name = 'x' WHEN NOT MATCHED AND s.op <> 'D' "
     "THEN INSERT (name, price, id) VALUES ('x', s.price, key)",
     lambda r, s: None if s["op"] == "D" else {"price": s["price"], "name": "x"},
     lambda s: {"price": s["price"], "name": "x"}),
    ("USING db.changes s ON t.id = s.key WHEN NOT MATCHED AND s.key > 12 THEN INSERT (id) "
     "VALUES (s.key)",
     lambda r, s: {}, lambda s: {"price": None} if (s["key"] or 0) > 12 else None),
    ("USING db.changes s ON t.id = s.key WHEN MATCHED THEN DELETE",
     lambda r, s: None, lambda s: None),
    ("USING db.changes s ON t.id = s.key WHEN MATCHED AND s.price > 25 THEN DELETE",
     lambda r, s: None if s["price"] > 25 else {}, lambda s: None),
    ("USING (SELECT key AS id, op AS name, price, CAST(5 AS INT) AS count FROM db.changes) s "
     "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
     lambda r, s: {"name": s["op"], "price": s["price"], "count": 5},
     lambda s: {"name": s["op"], "price": s["price"], "count": 5}),
    ("USING (SELECT key AS id, 'new' AS label FROM db.changes WHERE key IS NOT NULL) ON t.id = "
     "source.id WHEN MATCHED THEN UPDATE SET name = label",
     lambda r, s: {"name": "new"}, lambda s: None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "updated", "inserted"), MERGES)
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_changes_the_rows_that_the_standard_says(
    spark: Any,
    catalog: SqlCatalog,
    table: Table,
    changes: Table,
    text: str,
    updated: Any,
    inserted: Any,
    mode: str,
) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"write.merge.mode": mode})
    expected: list[dict[str, Any]] = []
    matches = {row["key"]: row for row in SOURCE if row["key"] is not None}
    for row in ROWS:
        values = updated(row, matches[row["id"]]) if row["id"] in matches else {}
        if values is not None:
            expected.append({**row, **values})
    for row in SOURCE:
        values = inserted(row) if row["key"] not in range(10) else None
        if values is not None:
            expected.append({**_NEW, "price": None, "id": row["key"], **values})
    report = _run(spark, catalog, f"MERGE INTO db.t AS t {text}")
    assert report.operation == "merge"
    key = str
    assert sorted(key(sorted(row.items())) for row in _rows(table)) == sorted(
        key(sorted(row.items())) for row in expected
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ON t.id > s.key WHEN MATCHED THEN DELETE", "ON t.id > s.key"),
        ("ON t.id = s.key AND t.price = 1 WHEN MATCHED THEN DELETE", "ON t.price = 1"),
        ("ON t.id = s.op WHEN MATCHED THEN DELETE", "of type string"),
        ("ON t.id = s.key WHEN MATCHED AND t.price > 1 THEN DELETE", "t.price in t.price > 1"),
        ("ON t.id = s.key WHEN MATCHED THEN UPDATE SET price = t.price + 1", "t.price in"),
        ("ON t.id = s.key WHEN MATCHED THEN UPDATE SET price = price", "ambiguous column price"),
        ("ON t.id = s.key WHEN MATCHED THEN UPDATE SET id = s.key + 1", "a column of ON"),
        ("ON t.id = s.key WHEN NOT MATCHED BY SOURCE THEN DELETE", "NOT MATCHED BY SOURCE"),
        ("ON t.id = s.key WHEN MATCHED THEN UPDATE SET price = s.price WHEN NOT MATCHED THEN "
         "INSERT (id, price) VALUES (s.key, 0)", "updates 'price' to s.price and inserts 0"),
        ("ON t.id = s.key WHEN MATCHED THEN UPDATE SET *", "no column 'id'"),
        ("ON t.id = s.key WHEN MATCHED AND s.op = 'U' THEN UPDATE SET price = 1 WHEN MATCHED "
         "THEN UPDATE SET price = 2", "several UPDATE"),
        ("ON t.id = s.key WHEN MATCHED AND s.op = 'D' THEN DELETE WHEN MATCHED THEN UPDATE SET "
         "price = s.price WHEN NOT MATCHED THEN INSERT (id, price) VALUES (s.key, s.price)",
         "MERGE with a source row that says to delete"),
    ],
)  # fmt: skip
def test_a_merge_that_does_not_fit_is_refused_and_changes_nothing(
    spark: Any, catalog: SqlCatalog, table: Table, changes: Table, text: str, message: str
) -> None:
    with pytest.raises(icestream.InvalidArgumentError, match=message):
        _run(spark, catalog, f"MERGE INTO db.t AS t USING db.changes AS s {text}")
    assert _rows(table) == ROWS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE FROM db.t WHERE id % 2 = 0", "the condition id % 2 = 0"),
        ("DELETE FROM db.t WHERE id < CAST(300 AS TINYINT)", "compare columns with plain"),
        ("DELETE FROM db.t WHERE id IN (SELECT 1)", "a subquery"),
        ("UPDATE db.t SET price = (SELECT 1)", "a subquery"),
        ("UPDATE db.t SET price = 1, price = 2", "sets 'price' twice"),
        ("UPDATE db.t SET nothing = 1", "no column 'nothing'"),
        ("UPDATE db.t SET price = DEFAULT", "the value DEFAULT"),
        ("CREATE VIEW v AS SELECT 1", "CREATE VIEW"),
        ("CREATE TABLE db.x (id INT) USING parquet", "USING PARQUET"),
        ("CREATE TABLE db.x (id INT) CLUSTERED BY (id) INTO 4 BUCKETS", "CLUSTERED"),
        ("CREATE TABLE db.t (id INT)", "already has a table 'db.t'"),
        ("CREATE TABLE db.t AS SELECT 1 AS id", "already has a table 'db.t'"),
        ("CREATE TABLE db.x (id NOTHING)", "(?i)nothing"),
        ("CREATE TABLE db.x", "without columns"),
        ("DROP VIEW v", "DROP VIEW"),
    ],
)
def test_what_is_not_supported_is_named(
    spark: Any, catalog: SqlCatalog, table: Table, text: str, message: str
) -> None:
    with pytest.raises(icestream.InvalidArgumentError, match=message):
        _run(spark, catalog, text)
    assert _rows(table) == ROWS
    assert not catalog.table_exists("db.x")


def test_a_table_is_created_with_its_columns_partitions_and_properties(
    spark: Any, catalog: SqlCatalog
) -> None:
    text = (
        "CREATE TABLE IF NOT EXISTS db.new (id BIGINT NOT NULL COMMENT 'the key', name STRING, "
        "place STRUCT<x: INT, y: ARRAY<DOUBLE>>, at TIMESTAMP, plain TIMESTAMP_NTZ, "
        "cost DECIMAL(9, 2)) USING iceberg PARTITIONED BY (days(at), bucket(4, id), name) "
        "COMMENT 'new' TBLPROPERTIES ('write.merge.mode' = 'merge-on-read', a.b = 'c')"
    )
    new = _run(spark, catalog, text)
    fields = {each.name: (str(each.field_type), each.required) for each in new.schema().fields}
    assert fields == {
        "id": ("long", True),
        "name": ("string", False),
        "place": (str(new.schema().find_field("place").field_type), False),
        "at": ("timestamptz", False),
        "plain": ("timestamp", False),
        "cost": ("decimal(9, 2)", False),
    }
    assert new.schema().find_field("id").doc == "the key"
    assert [str(each.transform) for each in new.spec().fields] == ["day", "bucket[4]", "identity"]
    assert new.properties == {
        "write.merge.mode": "merge-on-read", "a.b": "c", "comment": "new",
    }  # fmt: skip
    assert _run(spark, catalog, text) is None


def test_a_query_creates_a_table(spark: Any, catalog: SqlCatalog, table: Table) -> None:
    report = _run(
        spark,
        catalog,
        "CREATE TABLE db.names USING icestream PARTITIONED BY (name) AS "
        "WITH named AS (SELECT id, name FROM db.t WHERE name IS NOT NULL) SELECT * FROM named",
    )
    assert report.rows_inserted == 6
    names = catalog.load_table("db.names")
    assert _rows(names) == [{"id": r["id"], "name": r["name"]} for r in ROWS if r["name"]]
    assert len(names.spec().fields) == 1
    again = "CREATE TABLE IF NOT EXISTS db.names AS SELECT 1 AS id"
    assert _run(spark, catalog, again) is None


def test_a_table_is_dropped(spark: Any, catalog: SqlCatalog, table: Table) -> None:
    assert _run(spark, catalog, "DROP TABLE db.t") is None
    assert not catalog.table_exists("db.t")
    assert _run(spark, catalog, "DROP TABLE IF EXISTS db.t") is None
    with pytest.raises(icestream.CatalogError, match=r"no table 'db\.t'"):
        _run(spark, catalog, "DROP TABLE db.t")


_CLAUSES = [
    ("LIMIT 1", "LIMIT"), ("ORDER BY id LIMIT 1", "LIMIT|ORDER BY"), ("WHERE id = 4", "WHERE"),
    ("HAVING id > 1", "HAVING"), ("FROM db.t", "FROM"), ("TABLESAMPLE (1 ROWS)", "TABLESAMPLE"),
    ("FOR UPDATE", "FOR UPDATE"), ("LATERAL VIEW explode(a) x AS y", "LATERAL VIEW"),
    ("x", "the expression"), (",", "the expression"),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "message"), _CLAUSES)
@pytest.mark.parametrize("change", ["DELETE FROM db.t", "UPDATE db.t SET price = 0"])
def test_a_clause_after_a_condition_is_refused(
    spark: Any, catalog: SqlCatalog, table: Table, change: str, clause: str, message: str
) -> None:
    with pytest.raises(icestream.InvalidArgumentError, match=message):
        _run(spark, catalog, f"{change} WHERE id > 1 {clause}")
    assert _rows(table) == ROWS


@pytest.mark.parametrize("clause", ["WHERE s.key = 2", "LIMIT 1"])
def test_a_clause_after_on_is_refused(
    spark: Any, catalog: SqlCatalog, table: Table, changes: Table, clause: str
) -> None:
    text = f"USING db.changes s ON t.id = s.key {clause} WHEN MATCHED THEN DELETE"
    with pytest.raises(icestream.InvalidArgumentError, match=f"{clause[:5]}.* in the expression"):
        _run(spark, catalog, f"MERGE INTO db.t AS t {text}")
    assert _rows(table) == ROWS


EXACT = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("number", pa.int64()),
        ("cost", pa.decimal128(20, 2)),
        ("small", pa.int32()),
        ("pair", pa.struct([("a", pa.int32()), ("b", pa.int32())])),
    ]
)


@pytest.fixture
def exact(catalog: SqlCatalog) -> Table:
    new = catalog.create_table("db.exact", EXACT)
    row = {
        "text": "007",
        "number": 9007199254740993,
        "cost": Decimal("123456789012345678.91"),
        "small": 1,
        "pair": {"a": 1, "b": 2},
    }
    new.append(pa.Table.from_pylist([{"id": n, **row} for n in range(2)], schema=EXACT))
    return new


@pytest.mark.parametrize(
    ("column", "value", "result"),
    [
        ("text", "9", "9"),
        ("number", "1.0e0", 1),
        ("cost", "2.5e0", Decimal("2.50")),
        ("small", "id + 6", 7),
        ("small", "NULL", None),
        ("pair", "named_struct('a', 3L, 'b', 4L)", {"a": 3, "b": 4}),
    ],
)
def test_an_update_keeps_the_values_of_rows_that_its_condition_leaves_out(
    spark: Any, catalog: SqlCatalog, exact: Table, column: str, value: str, result: Any
) -> None:
    before, changed = _rows(exact)
    _run(spark, catalog, f"UPDATE db.exact SET {column} = {value} WHERE id + 0 = 1")
    assert _rows(exact) == [before, {**changed, column: result}]


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("small", "number", icestream.InvalidDataError, "'small' has a value of type bigint"),
        ("small", "text", icestream.SchemaMismatchError, "'small' is int, and the value is string"),
        ("pair", "named_struct('b', 1L, 'a', 2L)", icestream.SchemaMismatchError, "'pair' is"),
        ("small", "nothing", icestream.InvalidArgumentError, "nothing"),
    ],
)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_an_update_refuses_a_value_that_does_not_fit_its_column(
    spark: Any,
    catalog: SqlCatalog,
    exact: Table,
    column: str,
    value: str,
    error: type[Exception],
    message: str,
    ansi: str,
) -> None:
    before = _rows(exact)
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(error, match=message):
            _run(spark, catalog, f"UPDATE db.exact SET {column} = {value} WHERE id + 0 = 1")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert _rows(exact) == before


@pytest.mark.parametrize("text", ["DROP TABLE db.`x.y`", "CREATE TABLE db.`x.z` (id INT)"])
def test_a_name_with_a_dot_does_not_reach_another_namespace(
    spark: Any, catalog: SqlCatalog, text: str
) -> None:
    catalog.create_namespace("db.x")
    catalog.create_table("db.x.y", SCHEMA)
    with pytest.raises(icestream.InvalidArgumentError, match="which has a dot"):
        _run(spark, catalog, text)
    assert catalog.list_tables("db.x") == [("db", "x", "y")]


@pytest.mark.parametrize("condition", ["price < 1e400", "price > -1e400"])
def test_a_number_that_no_double_can_hold_deletes_nothing(
    spark: Any, catalog: SqlCatalog, table: Table, condition: str
) -> None:
    with pytest.raises(icestream.InvalidArgumentError, match="the condition price"):
        _run(spark, catalog, f"DELETE FROM db.t WHERE {condition}")
    assert _rows(table) == ROWS


@pytest.mark.parametrize(
    "clause",
    ["MATCHED THEN UPDATE SET *", "NOT MATCHED THEN INSERT *",
     "MATCHED THEN UPDATE SET pair = s.pair"],
)  # fmt: skip
def test_a_merge_does_not_exchange_the_fields_of_a_struct(
    spark: Any, catalog: SqlCatalog, exact: Table, clause: str
) -> None:
    before = _rows(exact)
    source = (
        "SELECT id, text, number, cost, small, named_struct('b', 20, 'a', 10) AS pair FROM db.exact"
    )
    text = f"USING ({source}) s ON t.id = s.id WHEN {clause}"
    with pytest.raises(icestream.SchemaMismatchError, match="'pair' is struct"):
        _run(spark, catalog, f"MERGE INTO db.exact t {text}")
    assert _rows(exact) == before


def test_the_alias_of_a_merge_may_be_the_name_of_a_column(
    spark: Any, catalog: SqlCatalog, table: Table, changes: Table
) -> None:
    text = "USING db.changes q ON id.id = q.key WHEN MATCHED THEN DELETE"
    _run(spark, catalog, f"MERGE INTO db.t AS id {text}")
    assert _rows(table) == [row for row in ROWS if row["id"] not in (2, 3)]


def test_a_merge_names_source_rows_with_the_same_key_in_the_words_of_sql(
    spark: Any, catalog: SqlCatalog, table: Table, changes: Table
) -> None:
    source = "SELECT key, price FROM db.changes UNION ALL SELECT key, price FROM db.changes"
    text = f"USING ({source}) s ON t.id = s.key WHEN MATCHED THEN DELETE"
    with pytest.raises(icestream.DuplicateKeysError, match=r"rows of MERGE .* GROUP BY"):
        _run(spark, catalog, f"MERGE INTO db.t t {text}")
    assert _rows(table) == ROWS


def test_a_merge_refuses_a_column_of_the_table_that_looks_like_a_function(
    spark: Any, catalog: SqlCatalog, changes: Table
) -> None:
    rows = pa.table({"id": [2], "current_user": ["me"], "name": ["n"]})
    words = catalog.create_table("db.words", rows.schema)
    words.append(rows)
    text = (
        "MERGE INTO db.words t USING db.changes s ON t.id = s.key "
        "WHEN MATCHED THEN UPDATE SET name = current_user"
    )
    with pytest.raises(icestream.InvalidArgumentError, match=r"write current_user\(\)"):
        _run(spark, catalog, text)
    assert _rows(words) == rows.to_pylist()
    _run(spark, catalog, f"{text}()")
    assert _rows(words)[0]["name"] not in ("me", "n")
