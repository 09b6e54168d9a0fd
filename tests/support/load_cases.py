"""Loads that every engine runs, with the same rows and the same figures in the end."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog

import icestream as ice

Load = Callable[..., ice.LoadReport]
_FIGURES = (
    "mode",
    "created",
    "already_committed",
    "rows_read",
    "rows_inserted",
    "rows_updated",
    "rows_unchanged",
    "rows_deleted",
    "rows_quarantined",
    "files_read",
    "bytes_read",
    "files_removed",
    "schema_changes",
    "columns_discarded",
)


@dataclass(frozen=True)
class Outcome:
    """What a case left: rows and types of the tables, and what the reports said."""

    rows: dict[str, list[tuple[Any, ...]]]
    columns: dict[str, list[str]]
    reports: list[dict[str, Any]]


def rows_in(catalog: Catalog, name: str = "db.t") -> list[dict[str, Any]]:
    """All rows of a table, in order."""
    return sorted(catalog.load_table(name).scan().to_arrow().to_pylist(), key=str)


def orders(start: int, count: int, **other: Any) -> pa.Table:
    numbers = range(start, start + count)
    columns: dict[str, Any] = {
        "id": pa.array(numbers, pa.int64()),
        "price": pa.array([number * 0.5 for number in numbers], pa.float64()),
        "country": ["SE" if number % 3 == 0 else "NO" for number in numbers],
    }
    return pa.table({**columns, **other})


def files_of_all_formats(load: Load, folder: Path) -> list[ice.LoadReport]:
    pq.write_table(orders(0, 50), folder / "a.parquet")
    pq.write_table(orders(50, 50), folder / "b.parquet")
    pa.orc.write_table(orders(100, 20), folder / "a.orc")
    with pa.ipc.new_file(folder / "a.arrow", orders(0, 1).schema) as writer:
        writer.write_table(orders(200, 20))
    (folder / "a.csv").write_text('id,price,country\n300,1.5,SE\n301,,\n302,2,""\n')
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id": 400, "country": "DK"}\n'))
    return [
        load(str(folder / "*.parquet"), "db.t", partition_by="country"),
        load([str(folder / "a.orc"), str(folder / "a.arrow")], "db.t"),
        load(str(folder / "a.csv"), "db.t"),
        load({"path": str(folder / "a.jsonl.gz"), "format": "json"}, "db.t"),
    ]


def merge_into_a_new_table(load: Load, folder: Path) -> list[ice.LoadReport]:
    pq.write_table(orders(0, 100), folder / "a.parquet")
    changed = orders(90, 20, price=pa.array([1000.0] * 20))
    pq.write_table(changed, folder / "b.parquet")
    return [
        load(folder / "a.parquet", "db.t", mode="merge", keys=["id"]),
        load(folder / "b.parquet", "db.t", mode="merge", keys="id"),
        load(folder / "b.parquet", "db.t", mode="merge", keys="id"),
    ]


def replace_with_sql(load: Load, folder: Path) -> list[ice.LoadReport]:
    pq.write_table(orders(0, 100), folder / "a.parquet")
    sql = "SELECT country, count(*) AS orders, sum(id) AS ids FROM source GROUP BY country"
    return [
        load(folder / "a.parquet", "db.t", mode="replace", transform=sql),
        load(folder / "a.parquet", "db.t", mode="replace", transform=f"{sql} HAVING count(*) > 40"),
    ]


def evolve_and_discard(load: Load, folder: Path) -> list[ice.LoadReport]:
    pq.write_table(orders(0, 10), folder / "a.parquet")
    pq.write_table(orders(10, 10, note=["x"] * 10), folder / "b.parquet")
    return [
        load(folder / "a.parquet", "db.t"),
        load(folder / "b.parquet", "db.t", schema_mode="discard"),
        load(folder / "b.parquet", "db.t", schema_mode="evolve"),
    ]


def quarantine(load: Load, folder: Path) -> list[ice.LoadReport]:
    lines = [f"{number},{number}.5" for number in range(50)]
    lines[7], lines[20] = "seven,1", "20"
    (folder / "a.csv").write_text("id,price\n" + "\n".join(lines) + "\n")
    (folder / "b.jsonl").write_text('{"id": 100, "price": 1}\nnull\n{"id": "x"}\n')
    sources = [folder / "a.csv", folder / "b.jsonl"]
    schema = {"id": "long", "price": "double"}
    options: dict[str, Any] = {"bad_records": "quarantine", "schema": schema}
    return [
        load(sources, "db.t", load_id="1", **options),
        load(sources, "db.t", load_id="1", **options),
    ]


def from_tables_and_streams(load: Load, folder: Path) -> list[ice.LoadReport]:
    pq.write_table(orders(0, 30), folder / "a.parquet")
    return [
        load(folder / "a.parquet", "db.from"),
        load({"table": "db.from", "where": "id >= 10", "columns": ["id", "price"]}, "db.t"),
        load(["table:db.from", lambda: orders(500, 5)], "db.t", schema_mode="discard"),
    ]


def incremental(load: Load, folder: Path) -> list[ice.LoadReport]:
    inbox = folder / "inbox"
    inbox.mkdir()
    pq.write_table(orders(0, 10), inbox / "1.parquet")
    reports = [load(inbox, "db.t", incremental=True), load(inbox, "db.t", incremental=True)]
    pq.write_table(orders(10, 10), inbox / "2.parquet")
    (inbox / "3.csv").write_text("id,price,country\n20,1.5,SE\n")
    reports.append(load(inbox, "db.t", incremental=True))
    copy: dict[str, Any] = {"mode": "merge", "keys": "id", "incremental": True}
    reports.append(load("table:db.t", "db.copy", **copy))
    pq.write_table(orders(30, 10), inbox / "4.parquet")
    reports.append(load(inbox, "db.t", incremental=True))
    reports.append(load("table:db.t", "db.copy", **copy))
    return reports


def hive_folders(load: Load, folder: Path) -> list[ice.LoadReport]:
    def at(name: str) -> Path:
        place = folder / name
        place.mkdir(parents=True)
        return place

    pq.write_table(orders(0, 3), at("all/year=2024/month=01") / "a.parquet")
    pa.orc.write_table(orders(3, 3), at("all/year=2025/month=12") / "a.orc")
    with pa.ipc.new_file(
        at("all/year=__HIVE_DEFAULT_PARTITION__/month=2") / "a.arrow", orders(0, 1).schema
    ) as writer:
        writer.write_table(orders(6, 3))
    (at("all/year=2026/month=3") / "a.csv").write_text("id,price,month\n300,1.5,9\n")
    (at("all/year=2027/month=4") / "a.jsonl").write_text('{"id": 400, "year": "text"}\n')
    pq.write_table(
        orders(9, 1), at("typed/day=2025-01-02/at=2025-01-02 03%3A04%3A05") / "a.parquet"
    )
    for number, value in enumerate(("7", "x y")):
        pq.write_table(orders(number, 1), at(f"mixed/key={value}") / "a.parquet")
    with_more: dict[str, Any] = {"schema_mode": "evolve"}
    return [
        load(folder / "all", "db.t", partition_by="year"),
        load(str(folder / "typed/day=2025-01-02/**/*.parquet"), "db.typed"),
        load(folder / "mixed/key=7/a.parquet", "db.t", **with_more),
        load(folder / "mixed", "db.mixed"),
        load({"path": folder / "mixed", "hive_partitions": False}, "db.plain"),
        load(folder / "mixed", "db.incremental", incremental=True),
        load(folder / "mixed", "db.incremental", incremental=True),
        load(folder / "mixed", "db.sql", transform="SELECT key, id FROM source WHERE key <> '7'"),
    ]


def selected_columns(load: Load, folder: Path) -> list[ice.LoadReport]:
    data = folder / "in" / "year=2024" / "month=01"
    data.mkdir(parents=True)
    pq.write_table(orders(0, 40, point=[{"x": n, "y": 0} for n in range(40)]), data / "a.parquet")
    (folder / "a.csv").write_text("id,price,code\n1,1.50,007\n2,19.99,010\n3,,x\nbad,1,x\n")
    select: list[Any] = [
        {"name": "key", "from": "id", "type": "string"},
        {"name": "price", "type": "decimal(10,2)"},
        {"name": "x", "from": "point.x", "type": "int"},
        "month",
        {"name": "origin", "value": "shop"},
    ]
    where = "id >= 10 and (country = 'NO' or country is null)"
    text: list[Any] = [
        {"name": "key", "from": "code"},
        {"name": "price", "type": "decimal(10,2)"},
        {"name": "origin", "value": "csv"},
    ]
    bad: dict[str, Any] = {"bad_records": "quarantine", "schema": {"id": "long"}, "load_id": "1"}
    merge: dict[str, Any] = {"mode": "merge", "keys": "key"}
    return [
        load(folder / "in", "db.t", select=select, where=where),
        load(folder / "in", "db.t", select=select, where=where),
        load(folder / "in", "db.t", select=select, where="id < 2"),
        load(folder / "a.csv", "db.t", select=text, where="id < 3", **bad),
        load("table:db.t", "db.merged", select=["key", "price"], **merge),
        load("table:db.t", "db.merged", select=["key", "price"], where="price > 10", **merge),
        load(
            ["table:db.t", folder / "a.csv"],
            "db.sql",
            select=["price", {"name": "n", "value": 2}],
            where="price is not null",
            transform="SELECT price, n * 2 AS n FROM source",
            schema={"price": "decimal(10,2)", "id": "string"},
        ),
    ]


def text_as_it_is(load: Load, folder: Path) -> list[ice.LoadReport]:
    objects = [{"id": number, "name": "x" * 100} for number in range(200_000)]
    (folder / "a.json").write_text(json.dumps(objects, indent=1))  # more than one part for Spark
    (folder / "a.csv").write_text('id;name\n1;"a\nb"\nx;"c\nd"\n2;é\n')
    (folder / "b.csv").write_bytes("id\tname\n3\té\n".encode("latin-1"))
    (folder / "c.csv").write_text("id,name\n")
    typed: dict[str, Any] = {"schema": {"id": "long", "name": "string"}}
    latin = {"path": str(folder / "b.csv"), "options": {"encoding": "latin-1"}}
    return [
        load(folder / "a.json", "db.t"),
        load(folder / "a.csv", "db.u", bad_records="quarantine", load_id="1", **typed),
        load(latin, "db.u"),
        load(folder / "c.csv", "db.u"),
    ]


def databases(load: Load, folder: Path) -> list[ice.LoadReport]:
    with sqlite3.connect(folder / "x.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER, price DECIMAL(9, 2), day DATE, x)")
        rows = [(number, number / 4, "2026-11-19", None) for number in range(3000)]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.close()
    with duckdb.connect(str(folder / "x.duckdb")) as other:
        other.execute("CREATE TABLE t AS SELECT range AS id, 'a' AS name FROM range(3000)")
    return [
        load(f"sqlite:///{folder}/x.db?table=t", "db.t"),
        load(f"duckdb:///{folder}/x.duckdb?table=t", "db.u", where="id < 2000"),
        load(f"adbc:sqlite:{folder}/x.db?query=SELECT id FROM t", "db.v"),
    ]


CASES: dict[str, Callable[[Load, Path], list[ice.LoadReport]]] = {
    case.__name__: case
    for case in (
        files_of_all_formats,
        merge_into_a_new_table,
        replace_with_sql,
        evolve_and_discard,
        quarantine,
        from_tables_and_streams,
        incremental,
        hive_folders,
        selected_columns,
        text_as_it_is,
        databases,
    )
}


def outcome(reports: list[ice.LoadReport], catalog: Catalog, folder: Path) -> Outcome:
    """What there is to compare."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    columns: dict[str, list[str]] = {}
    for name in sorted(".".join(name) for name in catalog.list_tables("db")):
        table = catalog.load_table(name)
        found = table.scan().to_arrow()
        if "quarantined_at" in found.column_names:
            found = found.drop_columns(["quarantined_at"])
        plain = [[_plain(value, folder) for value in row.values()] for row in found.to_pylist()]
        values = [tuple(row) for row in plain]
        rows[name] = sorted(values, key=repr)
        columns[name] = [f"{field.name} {field.field_type}" for field in table.schema().fields]
    told = [{key: getattr(report, key) for key in _FIGURES} for report in reports]
    return Outcome(rows, columns, told)


def _plain(value: Any, folder: Path) -> Any:
    return value.replace(str(folder), "") if isinstance(value, str) else value
