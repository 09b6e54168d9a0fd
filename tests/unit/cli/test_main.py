"""The program as a process: exit codes, pipes, signals, terminals, and what it imports."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from tests.unit.cli.conftest import ROWS, Run

_COMMAND = [sys.executable, "-m", "icestream"]
_LINE = f"{sys.executable} -m icestream"
_OTHER_FORMATS = ("json", "arrow", "text")


def _shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False
    )


@pytest.fixture
def big(catalog: Catalog) -> Table:
    """More rows than a pipe holds."""
    return _with_rows(catalog, 100_000)


def _with_rows(catalog: Catalog, count: int) -> Table:
    text = pa.repeat("some text", count)
    rows = pa.table({"id": np.arange(count), "text": text})
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


@pytest.mark.parametrize(
    "format_",
    ["csv", "parquet", *(pytest.param(name, marks=pytest.mark.slow) for name in _OTHER_FORMATS)],
)
def test_a_pipe_that_is_closed_early_ends_the_scan_quietly(big: Table, format_: str) -> None:
    done = _shell(
        f"{_LINE} scan shop.big -q --memory 32MB --format {format_} | head -c 1000 | wc -c"
    )
    assert done.stdout.strip() == "1000"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
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
    catalog: Catalog, folder: Path
) -> None:
    big = _with_rows(catalog, 1_000_000)  # a single file, which takes a while to rewrite
    before = big.metadata.current_snapshot_id
    changes = pa.table({"id": np.arange(0, 10**6, 2), "text": pa.repeat("new", 500_000)})
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


def test_progress_is_drawn_on_a_terminal(orders: Table) -> None:
    code, drawn = _on_a_terminal("stderr", "scan shop.orders -o /dev/null --format text")
    assert code == 0, drawn
    assert re.search(r"scan shop\.orders: .*1,800 rows, holds .* of 256 MB", drawn)


@pytest.mark.slow
def test_a_terminal_gets_aligned_rows_and_no_binary(orders: Table) -> None:
    code, shown = _on_a_terminal("stdout", "scan shop.orders --where 'id<1' --columns id,country")
    assert (code, shown) == (0, "id  country\r\n 0  SE\r\n")
    assert _on_a_terminal("stdout", "scan shop.orders --format parquet") == (2, "")


def _on_a_terminal(stream: str, arguments: str) -> tuple[int, str]:
    """Run a command with stdout or stderr on a terminal; its exit code, and what is seen there."""
    parent, child = pty.openpty()
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: child}
    with subprocess.Popen([*_COMMAND, *shlex.split(arguments)], **streams) as process:  # type: ignore[call-overload]
        os.close(child)
        seen = b""
        while chunk := _read(parent):
            seen += chunk
        process.communicate()
    os.close(parent)
    return process.returncode, seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other side has closed
        return b""


def test_the_traceback_comes_with_debug_only(orders: Table, run: Run) -> None:
    plain = run("scan", "shop.orders", "--where", "nope = 1")
    assert "Traceback" not in plain.stderr
    for arguments in (("--debug", "scan", "shop.orders"), ("scan", "--debug", "shop.orders")):
        shown = run(*arguments, "--where", "nope = 1")
        assert shown.exit_code == 2
        assert "Traceback (most recent call last)" in shown.stderr
        assert shown.stderr.splitlines()[-3].startswith("icestream: the filter")


def test_a_message_of_several_lines_becomes_one(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **options: object) -> None:
        raise OSError("one\n  two")

    monkeypatch.setattr(ice, "health", fail)
    assert run("health", "shop.orders", "-q").stderr == "icestream: OSError: one two\n"


@pytest.mark.parametrize("arguments", [("nope",), ("scan",), ("scan", "t"), ("tables", "--nope")])
def test_a_call_that_is_wrong_ends_with_code_2(
    orders: Table, run: Run, arguments: tuple[str, ...]
) -> None:
    shown = run(*arguments)
    assert shown.exit_code == 2
    assert shown.stderr.splitlines()[-1].startswith("icestream: ")
