"""One pipeline, run in this process and by a session elsewhere: the same rows, the same figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.conformance.engines import opened
from tests.support.load_cases import orders
from tests.support.spark_process import SparkProcess
from tests.support.tables import make_catalog

_LOADS: dict[str, dict[str, Any]] = {
    "orders": {
        "sources": ["orders/*.parquet", "orders/*.csv"],
        "transform": "SELECT *, price * 2 AS doubled FROM source WHERE id % 10 <> 3",
        "into": "db.orders",
        "partition_by": ["country"],
        "tests": [{"unique": "id"}, {"sql": "SELECT * FROM result WHERE price < 0"}],
    },
    "first": {
        "sources": ["changes.csv", "changes.parquet"],
        "into": "db.merged",
        "mode": "merge",
        "keys": "id",
        "transform": "SELECT id, price FROM source",
    },
    "changes": {
        "after": ["orders"],
        "sources": ["changes.csv", "changes.parquet"],
        "transform": "SELECT *, price * 2 AS doubled FROM source",
        "into": "db.orders",
        "mode": "merge",
        "keys": "id",
        "tests": [{"not_null": ["id", "price"]}],
    },
    "daily": {
        "source": "table:db.orders",
        "transform": "SELECT country, count(*) AS orders, sum(price) AS total FROM source "
        "GROUP BY country",
        "into": "db.daily",
        "mode": "replace",
    },
    "everything": {
        "after": ["first"],
        "sources": ["orders/*.csv", "orders/*.parquet"],
        "transform": "SELECT id, price FROM source WHERE country = 'SE'",
        "into": "db.merged",
        "mode": "replace",
    },
}
_FIGURES = (
    *("mode", "created", "already_committed", "files_read", "schema_changes"),
    *("rows_read", "rows_inserted", "rows_updated", "rows_unchanged", "rows_deleted"),
)


def loads_the_same_as_in_process(process: SparkProcess, folder: Path, **where: str) -> None:
    """Run a pipeline of an append, merges and replaces from CSV and Parquet on both.

    Args:
        process: The session.
        folder: An empty one, which executors can see.
        **where: `master` or `remote`, as users name it in the file.
    """
    _write_sources(folder)
    in_process = _run_in(folder / "in_process", {"engine": "local"}, None)
    on_spark = _run_in(folder / "on_spark", {"engine": "spark", **where}, process)
    assert on_spark["rows"] == in_process["rows"]
    assert on_spark["columns"] == in_process["columns"]
    figures = in_process["figures"]
    for load, told in on_spark["figures"].items():
        if told["rows_read"] is None:  # through Spark Connect tasks can't tell
            assert "remote" in where
            figures[load]["rows_read"] = None
    assert on_spark["figures"] == figures, f"{on_spark['figures']} is not {figures}"
    assert on_spark["snapshots"] == in_process["snapshots"]
    # So that all of it has been compared, and not nothing with nothing.
    assert {name: len(rows) for name, rows in in_process["rows"].items()} == {
        "db.daily": 2,
        "db.merged": 117,
        "db.orders": 345,
    }


def _write_sources(folder: Path) -> None:
    (folder / "orders").mkdir()
    for number in range(3):
        pq.write_table(orders(number * 100, 100), folder / "orders" / f"{number}.parquet")
    lines = [f"{n},{n * 0.5},{'SE' if n % 3 == 0 else 'NO'}" for n in range(300, 350)]
    (folder / "orders" / "a.csv").write_text("\n".join(["id,price,country", *lines]) + "\n")
    changed = orders(200, 100, price=pa.array([1.5] * 100))
    pq.write_table(changed, folder / "changes.parquet")
    lines = [f"{n},7.25,SE" for n in range(1000, 1020)]
    (folder / "changes.csv").write_text("\n".join(["id,price,country", *lines]) + "\n")


def _run_in(folder: Path, defaults: dict[str, str], process: SparkProcess | None) -> dict[str, Any]:
    folder.mkdir()
    file = folder.parent / f"{folder.name}.yaml"
    # JSON is YAML.
    file.write_text(
        json.dumps(
            {"name": folder.name, "defaults": {"memory": "64MB"} | defaults, "loads": _LOADS}
        )
    )
    catalog = make_catalog(folder)
    try:
        if process is None:
            report = _run(file, catalog)
        else:
            report = process.call(_run_there, str(file), dict(catalog.properties))
        return {**_found(catalog), "figures": _figures(report)}
    finally:
        catalog.close()


def _run(file: Path, catalog: SqlCatalog) -> ice.RunReport:
    report = ice.run(file, catalog=catalog, state=file.parent / f"{file.stem}_state")
    assert isinstance(report, ice.RunReport)
    return report


def _run_there(spark: Any, file: str, properties: dict[str, str]) -> ice.RunReport:
    catalog = opened(properties)
    try:
        return _run(Path(file), catalog)
    finally:
        catalog.close()


def _found(catalog: SqlCatalog) -> dict[str, Any]:
    tables = {".".join(n): catalog.load_table(n) for n in sorted(catalog.list_tables("db"))}
    read = {name: table.scan().to_arrow() for name, table in tables.items()}
    return {
        "rows": {n: sorted(map(str, rows.to_pylist())) for n, rows in read.items()},
        "columns": {
            n: [str(field.field_type) for field in t.schema().fields] for n, t in tables.items()
        },
        "snapshots": {name: len(table.metadata.snapshots) for name, table in tables.items()},
    }


def _figures(report: ice.RunReport) -> dict[str, Any]:
    found = {}
    for outcome in report.loads:
        assert outcome.report is not None
        told = {name: getattr(outcome.report, name) for name in _FIGURES}
        tests = [(test.name, test.passed, test.failures) for test in outcome.tests]
        found[outcome.load] = {"status": outcome.status, **told, "tests": tests}
    return found
