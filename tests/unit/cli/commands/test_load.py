"""`icestream load`: files into a table, with reports, plans and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.cli.commands.load import _sources, counts
from icestream.cli.exit_codes import ExitCode
from icestream.cli.output.progress import Progress
from icestream.cli.output.report_text import load_text
from tests.unit.cli.conftest import ROWS, Run, order_rows

LOCAL = ("--engine", "local")


def test_a_load_creates_the_catalog_and_the_table(folder: Path, run: Run) -> None:
    pq.write_table(order_rows(0, 100), folder / "a.parquet")
    shown = run("load", "a.parquet", "--into", "shop.new", "--partition-by", "day(day)", *LOCAL)
    assert shown.exit_code == 0, shown.stderr
    assert "shop.new: created, snapshot" in shown.stdout
    assert "no catalog is configured: using" in shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["rows", "read", "100"] in lines
    assert ["rows", "inserted", "100"] in lines
    [stored] = (folder / "icestream_state" / "reports").iterdir()
    assert json.loads(stored.read_text())["rows_inserted"] == 100


def test_a_load_as_json_is_its_report(orders: Table, run: Run) -> None:
    command = ("load", "changes.csv", "--into", "shop.orders", "--mode", "merge", "--keys", "id")
    shown = run(*command, "--load-id", "a", "--json", "--state", "elsewhere", *LOCAL)
    report = json.loads(shown.stdout)
    assert report["snapshot_id"] == str(orders.refresh().metadata.current_snapshot_id)
    assert (report["rows_inserted"], report["rows_updated"]) == (1, 1)
    assert "elsewhere" in report["report_file"]
    again = run(*command, "--load-id", "a", *LOCAL)
    assert "committed before; nothing was done" in again.stdout


def test_columns_and_rows_can_be_chosen(catalog: Catalog, folder: Path, run: Run) -> None:
    (folder / "a.csv").write_text("id,price,note\n1,5,a\n2,15,b\n")
    command = ("load", "a.csv", "--into", "shop.few", "--where", "price > 10", *LOCAL)
    shown = run(*command, "--select", "id, amount=price")
    assert shown.exit_code == 0, shown.stderr
    rows = catalog.load_table("shop.few").scan().to_arrow().to_pylist()
    assert rows == [{"id": 2, "amount": 15}]
    wrong = run(*command, "--select", "id,=price")
    assert wrong.exit_code == ExitCode.USAGE
    assert "write columns like id,price=amount" in wrong.stderr
    unknown = run(*command, "--select", "id,nte")
    assert "did you mean 'note'" in unknown.stderr
    mistyped = run("load", "a.csv", "--into", "shop.typed", "--type", "idd=long", *LOCAL)
    assert mistyped.exit_code == ExitCode.USAGE
    assert "--type COLUMN=TYPE" not in mistyped.stderr
    assert "--type names 'idd', but the source has no such column" in mistyped.stderr


def test_options_are_for_files_and_databases() -> None:
    address = "jdbc:mysql://host/db?table=t&user=me"
    settings = {"format": "avro", "hive_partitions": False}
    files, database, table = _sources(("a.avro", address, "table:a.b"), settings, {"jar": "x.jar"})
    assert files == {"path": "a.avro", "options": {"jar": "x.jar"}, **settings}
    assert (database.url, database.table) == ("jdbc:mysql://host/db", "t")
    assert database.options == {"jar": "x.jar", "user": "me"}
    assert table == "table:a.b"


def test_options_of_files_are_passed_on(catalog: Catalog, folder: Path, run: Run) -> None:
    (folder / "a.txt").write_text("1\tx\n2\t-\n")
    shown = run(
        *("load", "a.txt", "--into", "shop.t", "--format", "csv", "--option", "delimiter=\\t"),
        *("--option", "header=false", "--option", "columns=id,name", "--option", "nulls=-"),
        *("--type", "id=int", "--table-property", "a=b", "--property", "team=x", *LOCAL),
    )
    assert shown.exit_code == 0, shown.stderr
    table = catalog.load_table("shop.t")
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]
    assert str(table.schema().find_type("id")) == "int"
    assert table.properties["a"] == "b"
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["team"] == "x"


def test_a_dry_run_tells_and_touches_nothing(orders: Table, run: Run, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    command = ("load", "changes.csv", "--into", "shop.orders", "--mode", "merge", "--keys", "id")
    shown = run(*command, "--dry-run", *LOCAL)
    assert shown.exit_code == 0, shown.stderr
    assert "would merge into shop.orders (dry run: nothing was changed)" in shown.stdout
    plan = json.loads(run(*command, "--dry-run", "--json", *LOCAL).stdout)
    assert plan["files_removed_at_most"] == 3
    assert sorted(folder.rglob("*")) == before
    created = run("load", "changes.csv", "--into", "shop.new", "--dry-run", *LOCAL)
    assert "would create shop.new and append" in created.stdout


def test_bad_records_fail_or_are_set_aside(orders: Table, run: Run, folder: Path) -> None:
    (folder / "changes.csv").write_text("id,price\nx,1\n6000,1\n")
    command = ("load", "changes.csv", "--into", "shop.orders", *LOCAL)
    failed = run(*command)
    assert failed.exit_code == ExitCode.INPUT
    assert "line 2" in failed.stderr
    assert "--bad-records quarantine" in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 2  # the catalog, and the error
    done = run(*command, "--bad-records", "quarantine")
    assert "1 in shop.orders_quarantine" in done.stdout
    assert orders.refresh().scan().to_arrow().num_rows == ROWS + 1


def test_watching_shows_what_is_loaded_until_ctrl_c(
    catalog: Catalog, folder: Path, run: Run
) -> None:
    (folder / "inbox").mkdir()
    pq.write_table(order_rows(0, 10), folder / "inbox" / "1.parquet")
    waits: list[float] = []

    def wait(event: object, seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            pq.write_table(order_rows(10, 10), folder / "inbox" / "2.parquet")
        elif len(waits) == 3:
            raise KeyboardInterrupt

    with mock.patch("icestream.cli.commands.load.pause", lambda seconds: wait(None, seconds)):
        shown = run(
            "load", "inbox", "--into", "shop.t", "--incremental", "--watch", "7", "-q", *LOCAL
        )
    assert shown.exit_code == ExitCode.INTERRUPTED
    assert waits == [7, 7, 7]
    assert shown.stdout.count("snapshot") == 2
    assert catalog.load_table("shop.t").scan().to_arrow().num_rows == 20


def test_ctrl_c_says_that_nothing_was_created(catalog: Catalog, folder: Path, run: Run) -> None:
    (folder / "a.csv").write_text("id\n1\n")
    with mock.patch(
        "icestream.pipeline.engines.local_engine.append",
        side_effect=KeyboardInterrupt,
        autospec=True,
    ):
        shown = run("load", "a.csv", "--into", "shop.t", *LOCAL)
    assert shown.exit_code == ExitCode.INTERRUPTED
    assert "interrupted: shop.t was not created" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "apend"), "is not one of"),
        (("--keys", "id"), "keys is for --mode merge"),
        (("--watch", "3"), "--incremental"),
        (("--checkpoint", "x"), "--incremental"),
        (("--option", "delimeter=;"), "did you mean 'delimiter'"),
    ],
    ids=str,
)
def test_a_call_that_can_not_be_is_refused(
    orders: Table, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    shown = run("load", "changes.csv", "--into", "shop.orders", *arguments, *LOCAL)
    assert shown.exit_code == ExitCode.USAGE
    assert message in shown.stderr


def test_progress_shows_the_limit_of_tasks_and_their_memory() -> None:
    progress = ice.LoadProgress(stage="loading", rows=10, files=1, files_total=2)
    progress.limit_bytes, progress.worker_bytes = 64_000_000, 200_000_000
    progress.tasks, progress.tasks_total = 3, 4
    line = Progress("load into db.t", lambda: counts(progress)).line()
    assert "3 of 4 tasks" in line
    assert "worker 200 of base + 64 MB" in line
    progress.worker_base_bytes = 150_000_000
    assert "files" not in line
    line = Progress("load into db.t", lambda: counts(progress)).line()
    assert "worker 200 of 150 + 64 MB" in line


def test_a_report_says_what_workers_took_and_what_to_ask_for() -> None:
    report = ice.LoadReport(
        load="a",
        into="db.t",
        mode="append",
        engine="spark",
        memory_limit_bytes=256_000_000,
        peak_worker_bytes=431_000_000,
        worker_base_bytes=214_000_000,
    )
    text = "\n".join(load_text(report))
    assert "largest worker 431 MB = base 214 MB + 217 MB of 256 MB" in text
    assert "574 MB of memoryOverhead per core" in text
    assert report.to_dict()["worker_bytes_at_most"] == 574_000_000


def test_the_same_file_is_already_loaded_unless_again(
    catalog: Catalog, folder: Path, run: Run
) -> None:
    (folder / "a.csv").write_text("id\n1\n")
    command = ("load", "a.csv", "--into", "shop.t", *LOCAL)
    assert run(*command).exit_code == 0
    shown = run(*command)
    assert shown.exit_code == 0
    assert "shop.t: already loaded; nothing was done (--again" in shown.stdout
    assert "nothing would be done (--again" in run(*command, "--dry-run").stdout
    assert json.loads(run(*command, "--json", "-q").stdout)["status"] == "already loaded"
    assert json.loads(run(*command, "--again", "--json", "-q").stdout)["status"] == "loaded"
    assert catalog.load_table("shop.t").scan().to_arrow().column("id").to_pylist() == [1, 1]


def test_columns_of_folders_can_be_left_out(catalog: Catalog, folder: Path, run: Run) -> None:
    (folder / "day=1").mkdir()
    (folder / "a.csv").write_text("id\n1\n")
    (folder / "day=1" / "b.csv").write_text("id\n2\n")
    assert run("load", "a.csv", "--into", "shop.t", *LOCAL).exit_code == 0
    shown = run("load", "day=1", "--into", "shop.t", *LOCAL)
    assert shown.exit_code != 0
    assert "from names of folders; --no-hive-partitions leaves them out" in shown.stderr
    shown = run("load", "day=1", "--no-hive-partitions", "--into", "shop.t", *LOCAL)
    assert shown.exit_code == 0, shown.stderr
