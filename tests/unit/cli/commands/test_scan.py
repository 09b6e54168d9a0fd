"""`icestream scan` and `icestream explain`."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.cli.output.sinks import CsvSink
from tests.unit.cli.conftest import ROWS, Run, order_rows


def _read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        with pa.OSFile(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path)
    return pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.json", "out.arrow"])
def test_rows_are_written_in_the_format_of_the_files_name(
    orders: Table, folder: Path, run: Run, name: str
) -> None:
    before = set(folder.iterdir())
    shown = run("scan", "shop.orders", "-o", name)
    assert shown.exit_code == 0, shown.stderr
    assert "1,800 rows from 3 files" in shown.stdout
    written = _read(folder / name).sort_by("id")
    expected = order_rows(0, ROWS)
    assert written["id"].to_pylist() == expected["id"].to_pylist()
    assert written["price"].to_pylist() == expected["price"].to_pylist()
    assert [str(day) for day in written["day"].to_pylist()] == [
        str(day) for day in expected["day"].to_pylist()
    ]
    assert set(folder.iterdir()) == {*before, folder / name}


def test_the_report_is_the_json_document_when_rows_go_to_a_file(orders: Table, run: Run) -> None:
    shown = run("scan", "shop.orders", "-o", "out.parquet", "--memory", "32MB", "--json")
    report = json.loads(shown.stdout)
    assert report["table"] == "shop.orders"
    assert report["rows"] == ROWS
    assert report["output"] == "out.parquet"
    assert report["memory_limit_bytes"] == 32_000_000
    assert 0 < report["peak_bytes_held"] <= 32_000_000


def test_rows_are_in_the_json_document_when_there_is_no_file(orders: Table, run: Run) -> None:
    document = json.loads(run("scan", "shop.orders", "--where", "id < 2", "--json").stdout)
    assert document["rows"] == [
        {"id": 0, "price": 0.0, "country": "SE", "day": "2026-11-01"},
        {"id": 1, "price": 0.5, "country": "NO", "day": "2026-11-02"},
    ]
    assert document["report"]["rows"] == 2


def test_the_document_of_no_rows_is_json_too(orders: Table, run: Run) -> None:
    document = json.loads(run("scan", "shop.orders", "--where", "id < 0", "--json").stdout)
    assert document["rows"] == []


def test_stdout_gets_csv_in_a_pipe_and_text_when_asked_for(orders: Table, run: Run) -> None:
    command = ("scan", "shop.orders", "--where", "id < 2", "--columns", "id,country")
    assert run(*command).stdout == '"id","country"\n0,"SE"\n1,"NO"\n'
    text = run(*command, "--format", "text")
    assert text.stdout == "id  country\n 0  SE\n 1  NO\n"
    assert "2 rows from 1 file" in text.stderr


def test_stdout_gets_an_arrow_stream(orders: Table, run: Run) -> None:
    shown = run("scan", "shop.orders", "-o", "-", "--format", "arrow")
    assert pa.ipc.open_stream(shown.stdout_bytes).read_all().num_rows == ROWS


def test_snapshots_branches_tags_and_moments_are_read(orders: Table, run: Run) -> None:
    first = orders.refresh().metadata.snapshots[0]
    orders.manage_snapshots().create_tag(first.snapshot_id, "start").commit()
    orders.manage_snapshots().create_branch(first.snapshot_id, "old").commit()
    for options in (
        ("--snapshot-id", str(first.snapshot_id)),
        ("--tag", "start"),
        ("--branch", "old"),
        ("--as-of", str(first.timestamp_ms)),
    ):
        shown = run("scan", "shop.orders", *options, "-o", "out.csv", "--json")
        assert json.loads(shown.stdout)["rows"] == 600, options
    limited = run("scan", "shop.orders", "--limit", "7", "--order", "arrival", "--json")
    assert len(json.loads(limited.stdout)["rows"]) == 7


def test_what_csv_and_json_lack_is_written_as_text(catalog: Catalog, run: Run) -> None:
    rows = pa.table(
        {
            "amount": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "raw": pa.array([b"\xff\x00", None], pa.binary()),
            "tags": pa.array([["a", "b"], None], pa.list_(pa.string())),
            "rate": pa.array([float("nan"), 0.5]),
        }
    )
    ice.append(catalog.create_table("shop.odd", rows.schema), rows)
    lines = run("scan", "shop.odd", "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"amount": "1.50", "raw": "/wA=", "tags": ["a", "b"], "rate": "NaN"},
        {"amount": None, "raw": None, "tags": None, "rate": 0.5},
    ]
    text = run("scan", "shop.odd", "--format", "csv").stdout
    assert list(csv.reader(io.StringIO(text)))[1:] == [
        ["1.50", "/wA=", '["a", "b"]', "nan"],
        ["", "", "", "0.5"],
    ]
    assert "1.50" in run("scan", "shop.odd", "--format", "text").stdout


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.arrow"])
def test_a_file_that_is_not_complete_never_appears(
    orders: Table, folder: Path, run: Run, name: str
) -> None:
    (folder / name).write_text("before")
    lost = next(iter(orders.inspect.files()["file_path"].to_pylist())).removeprefix("file://")
    Path(lost).unlink()
    shown = run("scan", "shop.orders", "-o", name)
    assert shown.exit_code == 8
    assert (folder / name).read_text() == "before"
    assert not [path for path in folder.iterdir() if "unfinished" in path.name]


def test_ctrl_c_leaves_no_file(
    orders: Table, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: CsvSink, batch: pa.RecordBatch) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CsvSink, "write", interrupted)
    shown = run("scan", "shop.orders", "-o", "out.csv")
    assert shown.exit_code == 130
    assert shown.stderr.splitlines()[-1] == "icestream: interrupted"
    assert not [path for path in folder.iterdir() if "out.csv" in path.name]


def test_a_device_is_written_to_as_it_is(orders: Table, run: Run) -> None:
    shown = run("scan", "shop.orders", "-o", "/dev/null", "--format", "csv")
    assert shown.exit_code == 0, shown.stderr
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-o", "out.xyz"), "end it with .parquet, .csv, .json or .arrow"),
        (("--json", "--format", "csv"), "write the rows to a file with -o"),
        (("--where", "nope = 1"), "there is no column 'nope'"),
        (("--columns", "id,,price"), "write columns like id,price"),
        (("--as-of", "yesterday"), "is not a time: write it like 2026-11-16"),
        (("--memory", "lots"), "write it like '64MB'"),
        (("--tag", "a", "--branch", "b"), "give one of --branch, --tag"),
    ],
)
def test_a_call_that_can_not_be_is_refused_with_code_2(
    orders: Table, run: Run, options: tuple[str, ...], message: str
) -> None:
    shown = run("scan", "shop.orders", *options)
    assert shown.exit_code == 2, shown.stderr
    assert shown.stdout == ""
    assert message in shown.stderr


def test_columns_are_printed_and_written_in_the_order_of_their_names(
    orders: Table, run: Run, folder: Path
) -> None:
    chosen = ("shop.orders", "--columns", "price,id", "--limit", "2")
    assert run("scan", *chosen, "--format", "csv").stdout.splitlines()[0] == '"price","id"'
    assert run("scan", *chosen, "--format", "text").stdout.split()[:2] == ["price", "id"]
    document = json.loads(run("scan", *chosen, "--json").stdout)
    assert [list(row) for row in document["rows"]] == [["price", "id"]] * 2
    for name in ("a.parquet", "a.csv", "a.json", "a.arrow"):
        shown = run("scan", *chosen, "-o", name)
        assert shown.exit_code == 0, shown.stderr
    assert pq.read_schema(folder / "a.parquet").names == ["price", "id"]
    assert (folder / "a.csv").read_text().startswith('"price","id"')
    assert list(json.loads((folder / "a.json").read_text().splitlines()[0])) == ["price", "id"]
    with pa.ipc.open_file(folder / "a.arrow") as stored:
        assert stored.schema.names == ["price", "id"]


@pytest.mark.parametrize(
    ("where", "lines"),
    [
        (
            "id > 1 annd price = 2",
            [
                "icestream: the filter can't be parsed: expected 'and' or 'or' after the "
                "condition, and found 'annd': did you mean 'and'?",
                "  id > 1 annd price = 2",
                "         ^",
            ],
        ),
        (
            "id > 1 and limit=5",
            [
                "icestream: the filter: there is no column 'limit': it has id, price, country, day",
                "  id > 1 and limit=5",
                "             ^",
            ],
        ),
    ],
)
def test_a_mistake_in_a_filter_is_one_line_and_a_caret_below_the_filter(
    orders: Table, run: Run, where: str, lines: list[str]
) -> None:
    shown = run("scan", "shop.orders", "--where", where)
    assert shown.exit_code == 2
    assert shown.stderr.splitlines()[-3:] == lines


def test_an_empty_filter_is_one_line_without_a_caret(orders: Table, run: Run) -> None:
    [line] = run("scan", "shop.orders", "--where", "").stderr.splitlines()[-1:]
    assert line.startswith("icestream: the filter")
    assert "it is empty" in line


def test_an_output_in_a_folder_that_is_not_there_is_refused(orders: Table, run: Run) -> None:
    shown = run("scan", "shop.orders", "-o", "nowhere/out.csv")
    assert shown.exit_code == 8
    assert "check its folder" in shown.stderr


def test_explain_shows_what_a_scan_would_hold(orders: Table, run: Run) -> None:
    options = ("--where", "id < 700", "--memory", "64MB")
    document = json.loads(run("explain", "shop.orders", *options, "--json").stdout)
    assert document["table"] == "shop.orders"
    assert document["files"] == 2
    assert document["memory_limit_bytes"] == 64_000_000
    lines = run("explain", "shop.orders", *options).stdout.splitlines()
    assert "files            2" in lines
    assert "limit            64 MB" in lines
    assert "filter           id < 700" in lines
