"""The command as a shell runs it: pipes, signals, exit codes, and what it imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from tests.unit.cli.conftest import ROWS

_COMMAND = [sys.executable, "-m", "icestream"]
_LINE = f"{sys.executable} -m icestream"


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False
    )


@pytest.fixture
def big(catalog: Catalog) -> Table:
    """More rows than a pipe holds, in a single file that takes a while to rewrite."""
    rows = pa.table({"id": pa.array(range(1_000_000), pa.int64()), "text": ["some text"] * 10**6})
    table = catalog.create_table("shop.big", rows.schema)
    ice.append(table, rows)
    return table


def test_help_imports_nothing_heavy() -> None:
    source = (
        "import sys, json\n"
        "from icestream.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as end: print(json.dumps([end.code, sorted(sys.modules)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    heavy = {"pyspark", "pyarrow", "pyiceberg", "numpy", "pandas", "sqlalchemy", "rich"}
    assert not heavy & set(modules)


def test_exit_codes_reach_the_shell(orders: Table) -> None:
    done = _shell(f"{_LINE} tables --json; echo $?; {_LINE} tables shop.nope; echo $?")
    document, first, second = done.stdout.splitlines()
    assert json.loads(document)["namespaces"] == {"shop": ["shop.orders"]}
    assert (first, second) == ("0", "8")
    assert "there is no table 'shop.nope'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("format_", ["csv", "json", "arrow", "parquet", "text"])
def test_a_pipe_that_is_closed_early_ends_the_scan_quietly(big: Table, format_: str) -> None:
    done = _shell(
        f"{_LINE} scan shop.big -q --memory 32MB --format {format_} | head -c 1000 | wc -c"
    )
    assert done.stdout.strip() == "1000"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_is_closed_early_ends_a_listing_quietly(orders: Table) -> None:
    done = _shell(f"{_LINE} tables -q shop.orders | true")
    assert (done.returncode, done.stderr) == (0, "")


def test_rows_go_through_a_pipe(orders: Table) -> None:
    done = _shell(f"{_LINE} scan shop.orders -o - --format json | wc -l")
    assert int(done.stdout) == ROWS
    assert f"{ROWS:,} rows from 3 files" in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_in_the_middle_of_a_scan_ends_it(
    big: Table, number: signal.Signals, code: int, word: str
) -> None:
    command = [*_COMMAND, "scan", "shop.big", "-q", "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # It has begun, and then waits: a pipe holds 64 kB.
        assert process.stdout.read(10) == b'"id","text'
        process.send_signal(number)
        process.stdout.read()
        errors = process.stderr.read().decode()
    assert (process.returncode, errors) == (code, f"icestream: {word}\n")


def test_ctrl_c_in_the_middle_of_a_merge_leaves_the_table_as_it_was(
    big: Table, folder: Path
) -> None:
    before = big.metadata.current_snapshot_id
    changes = pa.table({"id": pa.array(range(0, 10**6, 2), pa.int64()), "text": ["new"] * 500_000})
    pq.write_table(changes, folder / "changes.parquet")
    place = Path(big.location().removeprefix("file://"))
    files = set(place.rglob("*.*"))
    line = ["merge", "changes.parquet", "--into", "shop.big", "--on", "id", "--memory", "64MB"]
    with subprocess.Popen([*_COMMAND, *line, "-q"], stderr=subprocess.PIPE) as process:
        while not list(place.glob("data/**/*.parquet"))[1:]:  # until a new file is being written
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        errors = process.stderr.read().decode()
    assert process.returncode == 130, errors
    assert errors == "icestream: interrupted: shop.big is unchanged\n"
    assert big.refresh().metadata.current_snapshot_id == before
    assert set(place.rglob("*.*")) == files


def test_progress_is_drawn_on_a_terminal_and_leaves_nothing_behind(big: Table) -> None:
    script = pytest.importorskip("pty")
    parent, child = script.openpty()
    line = [*_COMMAND, "scan", "shop.big", "-o", "/dev/null", "--format", "json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=child) as process:
        os.close(child)
        drawn = b""
        while chunk := _read(parent):
            drawn += chunk
    os.close(parent)
    assert process.returncode == 0, drawn
    text = drawn.decode()
    assert "rows (" in text
    assert " of 256 MB" in text


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has closed
        return b""
