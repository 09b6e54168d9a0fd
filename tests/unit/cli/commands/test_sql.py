"""`icestream sql`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.table import Table

from tests.unit.cli.conftest import ROWS, Run

_COUNTS = "SELECT country, count(*) AS found FROM shop.orders GROUP BY country ORDER BY country"


def test_rows_go_to_stdout_as_csv_or_in_the_document(orders: Table, run: Run) -> None:
    shown = run("sql", _COUNTS)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout == '"country","found"\n"NO",1200\n"SE",600\n'
    assert "2 rows in" in shown.stderr
    document = json.loads(run("sql", _COUNTS, "--json").stdout)
    assert document["rows"] == [{"country": "NO", "found": 1200}, {"country": "SE", "found": 600}]
    assert document["report"]["tables"] == ["shop.orders"]
    assert (document["report"]["rows"], document["report"]["files"]) == (2, 3)
    text = run("sql", _COUNTS, "--format", "text").stdout.splitlines()
    assert [line.split() for line in text] == [["country", "found"], ["NO", "1200"], ["SE", "600"]]


def test_rows_go_to_a_file(orders: Table, run: Run, folder: Path) -> None:
    shown = run("sql", "SELECT * FROM local.shop.orders", "-o", "all.parquet", "--memory", "64MB")
    assert shown.exit_code == 0, shown.stderr
    rows = pq.read_table(folder / "all.parquet")
    assert (rows.num_rows, rows.column_names) == (ROWS, ["id", "price", "country", "day"])
    assert run("sql", _COUNTS, "-o", "all.json").exit_code == 0
    assert json.loads((folder / "all.json").read_text().splitlines()[0])["found"] == 1200


def test_an_error_is_one_line_and_leaves_no_file(orders: Table, run: Run, folder: Path) -> None:
    for query, code, words in (
        ("DROP TABLE shop.orders", 2, "write one SELECT"),
        ("SELECT nope FROM shop.orders", 2, "nope"),
        ("SELECT * FROM shop.nope", 8, "there is no table 'shop.nope'"),
        ("SELECT * FROM orders", 2, "include the namespace"),
    ):
        shown = run("-q", "sql", query, "-o", "x.csv")
        assert (shown.exit_code, len(shown.stderr.splitlines())) == (code, 1), shown.stderr
        assert words in shown.stderr
    assert run("sql", _COUNTS, "--memory", "1MB").exit_code == 7
    assert run("sql", _COUNTS, "--json", "--format", "csv").exit_code == 2
    assert not (folder / "x.csv").exists()
