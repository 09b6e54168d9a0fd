"""Inputs that mislead: each is read as it is, or refused with one line and a remedy that works.

A remedy in the table is what a user types next, after reading the message.
"""

from __future__ import annotations

import errno
import gzip
import io
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from tests.unit.cli.conftest import Run

_GOOD = b"id,v\n1,10\n2,20\n"
_LATIN = "id,name\n1,José\n".encode("latin-1")
_DAMAGED = b"PAR1" + b"\0" * 100 + b"PAR1"


def _parquet(**columns: list[object]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _sqlite(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (id INTEGER, v INTEGER)")
    connection.execute("INSERT INTO t VALUES (7, 8)")
    connection.commit()
    connection.close()


def _duckdb(path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS id, 8 AS v")


Content = bytes | Callable[[Path], None] | None


@dataclass(frozen=True)
class _Case:
    """A command line that fails.

    Attributes:
        files: Files of the folder; None makes a folder.
        line: The command line; words that contain spaces are not split.
        code: The exit code.
        words: A part of the message.
        remedy: The command line that the message leads to, if it can be run.
    """

    files: dict[str, Content]
    line: str | list[str]
    code: int
    words: str
    remedy: str | list[str] | None = None

    def __repr__(self) -> str:
        return self.line if isinstance(self.line, str) else " ".join(self.line)


def _load(source: str, more: str = "", into: str = "shop.new") -> str:
    return f"load {source} --into {into} --engine local {more}".rstrip()


def _one(
    name: str, content: Content, code: int, words: str, more: str = "", remedy: str | None = None
) -> _Case:
    """A load of one file into a new table; the remedy is more options."""
    again = None if remedy is None else _load(name, remedy)
    return _Case({name: content}, _load(name, more), code, words, again)


_FILES = [
    _one("latin.csv", _LATIN, 3, "line 2, can't be read: it is not valid UTF-8",
         remedy="--option encoding=latin-1"),
    _one("head.csv", "id,straße\n1,2\n".encode("latin-1"), 3, "header of",
         remedy="--option encoding=latin-1"),
    _one("u16.csv", _GOOD.decode().encode("utf-16"), 3, "probably UTF-16",
         remedy="--option encoding=utf-16"),
    _one("u16le.csv", _GOOD.decode().encode("utf-16-le"), 3, "probably UTF-16",
         remedy="--option encoding=utf-16-le"),
    _one("u16.json", '{"id": 1}\n'.encode("utf-16"), 3, "convert it to UTF-8"),
    _one("latin.json", '{"id": "é"}\n'.encode("latin-1"), 3, "not valid UTF-8.*give it as UTF-8"),
    _one("head.csv", b"id,v\n", 3, "a header and no rows",
         remedy="--type id=long --type v=double"),
    _one("empty.csv", b"", 3, "exclude empty files"),
    _one("empty.json", b"", 3, "exclude empty files"),
    _one("empty.parquet", b"", 3, "Fix or exclude the file"),
    _one("text.parquet", _GOOD, 3, "Fix or exclude the file", remedy="--format csv"),
    _one("cut.parquet", _parquet(id=[1])[:-20], 3, "Fix or exclude the file"),
    _one("damaged.parquet", _DAMAGED, 3, "can't be read"),
    _one("scalar.json", b"1\n2\n", 3, "one object on each line, or an array of objects"),
    _one("array.json", b"[1, 2]", 3, "one object on each line, or an array of objects"),
    _one("open.json", b'[{"id": 1},\n {"id": 2}', 3, "object 3 .*the array is not closed"),
    _one("wrong.json", b'[{"id": 1}, {"id": }]', 3, "object 2 .*Expecting value"),
    _one("x.xlsx", b"PK\x03\x04", 3, "a workbook.*save the sheet as CSV"),
    _one("x.xls", b"\xd0\xcf\x11\xe0", 3, "save the sheet as CSV"),
    _one("x.ods", b"PK\x03\x04", 3, "save the sheet as CSV"),
    _one("x.xml", b"<?xml version='1.0'?><a/>", 3, "convert it to CSV or JSON lines"),
    _one("page.csv", b"<!DOCTYPE html><html></html>", 3, "an HTML or XML document"),
    _one("x.avro", b"Obj\x01", 3, "only Spark reads: give --format avro and --engine spark"),
    _one("x.zip", b"PK\x03\x04", 3, "unpack it"),
    _one("x.tar.gz", gzip.compress(b"x"), 3, "unpack it"),
    _one("x.gz", gzip.compress(_GOOD), 3, "give --format csv", remedy="--format csv"),
    _one("x.txt", _GOOD, 3, "give --format csv", remedy="--format csv"),
    _one("x.data", _GOOD, 3, "give --format csv", remedy="--format csv"),
    _one("p.csv", _parquet(id=[1]), 3, "a Parquet file: load it with --format parquet",
         remedy="--format parquet"),
    _one("z.csv", b"PK\x03\x04rest", 3, "an Excel workbook or a ZIP archive"),
    _one("g.csv", gzip.compress(_GOOD), 3, "compressed with gzip: rename it"),
    _one("plain.csv.gz", _GOOD, 3, "rename it if it is not compressed with gzip"),
    _one("quote.csv", b'id,v\n1,"a\n2,b\n', 3, "line 2.*a quote is not closed",
         remedy="--bad-records quarantine"),
    _one("long.csv", b"id,v\n1,2\n1,2,3\n", 3, "line 3.*Expected 2 columns, got 3",
         remedy="--bad-records quarantine"),
    _one("word.csv", b"id,v\n1,2\n1,x\n", 3, "line 3", more="--type v=long",
         remedy="--type v=string"),
    _one("twice.csv", b"a,a\n1,2\n", 3, "names 'a' twice: fix it, or give option columns",
         remedy="--option columns=a,b"),
    _one("unnamed.csv", b"a,\n1,2\n", 3, "a column without a name",
         remedy="--option columns=a,b"),
    _Case({"none": None}, _load("none"), 3, "the folder 'none' has no files"),
    _Case({"d/a.md": b"x", "d/b.md": b"x"}, _load("d"), 3, "and 1 other files"),
    _Case({}, _load("nope.csv"), 3, "no file is at 'nope.csv': check the path"),
    _Case({}, _load("nope/*.csv"), 3, "no file is at"),
    _Case({"d/a.csv": b"id\nx\n", "d/b.csv": b"id\n1\n"}, _load("d"), 4, "do not go together",
          _load("d", "--type id=string")),
]  # fmt: skip

_OPTIONS = [
    _one("a.csv", _GOOD, 2, "give --option columns=id,price, too",
         more="--option header=false", remedy="--option header=false --option columns=id,v"),
    _one("a.csv", _GOOD, 2, "delimiter is ';;': give one", more="--option delimiter=;;"),
    _one("a.csv", _GOOD, 2, "encoding is 'klingon'", more="--option encoding=klingon"),
    _one("a.csv", _GOOD, 2, "multiline is 'maybe': give true or false",
         more="--option multiline=maybe"),
    _one("a.csv", _GOOD, 2, "delimeter", more="--option delimeter=;",
         remedy="--option delimiter=,"),
    _one("a.parquet", _parquet(id=[1]), 2, "an option of CSV files",
         more="--format parquet --option delimiter=;", remedy="--format parquet"),
    _one("a.csv", _GOOD, 7, "raise --memory to 4 MB", more="--memory 1kB", remedy="--memory 4MB"),
    _one("a.csv", _GOOD, 7, "raise --memory to 3.2 MB", more="--memory 2MB",
         remedy="--memory 3.2MB"),
    _one("a.csv", _GOOD, 2, "memory 'lots' is not a size", more="--memory lots",
         remedy="--memory 64MB"),
    _one("a.csv", _GOOD, 2, "more than zero bytes", more="--memory 0"),
    _one("a.csv", _GOOD, 2, "add --incremental", more="--watch 5"),
    _one("a.csv", _GOOD, 2, "--bad-records quarantine, too", more="--quarantine shop.bad",
         remedy="--quarantine shop.bad --bad-records quarantine"),
    _one("a.csv", _GOOD, 2, "--mode merge", more="--keys id", remedy="--mode merge --keys id"),
    _one("a.csv", _GOOD, 2, "no column 'nope': there are id, v", more="--partition-by nope"),
    _one("a.csv", _GOOD, 8, "shop.new", more="--no-create", remedy="--create"),
    _one("a.csv", _GOOD, 2, "'id' has no value: write COLUMN=TYPE", more="--type id",
         remedy="--type id=long"),
    _one("a.csv", _GOOD, 2, "-1.* is not in the range", more="--incremental --watch -1"),
    _Case({}, _load("http://127.0.0.1/x.csv"), 3, "download other files first"),
    _Case({"a.csv": _GOOD}, _load("a.csv", "--branch nope", into="shop.old"), 2,
          "create it first with `icestream branch create shop.old nope`",
          "branch create shop.old nope"),
    _Case({}, "scan shop.old --as-of 1999-01-01", 2, "`icestream snapshots shop.old` lists",
          "snapshots shop.old"),
    _Case({}, "rollback shop.old --to 5", 2, "`icestream snapshots shop.old` lists",
          "snapshots shop.old"),
    _Case({}, "tables --catalog nope", 8, "its configuration has no uri.*PYICEBERG_CATALOG__NOPE"),
    _Case({}, "rename shop.old nope.x", 2, r"create it first with catalog\.create_namespace"),
    _Case({"p.yaml": b"loads:\n  a:\n    source: {files: a.csv}\n    into: shop.x\n"},
          "run p.yaml", 2, "p.yaml:3: .*'files'.*did you mean 'path'"),
    _Case({"a.csv": _GOOD}, _load("a.csv", into="new"), 2, "as in 'db.t'",
          _load("a.csv", into="shop.new")),
    _Case({}, _load("table:shop.nope"), 8, "did you mean .shop.old.."),
    _Case({"a.csv": _GOOD}, _load("a.csv", "--catalog nope"), 8, "nope"),
]  # fmt: skip

_QUERY = "SELECT id, CAST(v AS BIGINT) AS v FROM source"
_TABLES = [
    _Case({"d.parquet": _parquet(id=[1], v=[2.0])},
          _load("d.parquet", "--schema-mode evolve", into="shop.old"), 4,
          "cast these columns to the table's types, or load into a new table",
          [*_load("d.parquet", into="shop.old").split(), "--transform", _QUERY]),
    _Case({"d.csv": b"id,v\n1,2.5\n"}, _load("d.csv", "--schema-mode evolve", into="shop.old"), 3,
          "invalid value '2.5'", _load("d.csv", into="shop.other")),
    _Case({"n.csv": b"id,new\n1,2\n"}, _load("n.csv", into="shop.old"), 4, "--schema-mode evolve",
          _load("n.csv", "--schema-mode evolve", into="shop.old")),
    _Case({"k.csv": b"id,v\n1,2\n1,3\n"}, "merge k.csv --into shop.old --on id", 3, "repeat the",
          "merge k.csv --into shop.old --on id --on-duplicate last"),
    _Case({"k.csv": b"id,v\n,2\n"}, "merge k.csv --into shop.old --on id", 3, "null"),
    _Case({"k.csv": _GOOD}, "merge k.csv --into shop.old", 2, "name the key columns",
          "merge k.csv --into shop.old --on id"),
    _Case({"k.csv": b"id,v\nx,2\n"}, "merge k.csv --into shop.old --on id", 3, "line 2",
          _load("k.csv", "--mode merge --keys id --bad-records quarantine", into="shop.old")),
    _Case({"k.csv": _LATIN}, "merge k.csv --into shop.old --on id --schema-mode evolve", 3,
          "--option encoding=latin-1",
          "merge k.csv --into shop.old --on id --schema-mode evolve --option encoding=latin-1"),
    _Case({"k.xlsx": b"PK"}, "merge k.xlsx --into shop.old --on id", 3, "save the sheet as CSV"),
    _Case({"k.csv": _GOOD}, "merge k.csv --into shop.old --on id --option sep=;", 2,
          "no reader option 'sep': give one of delimiter",
          "merge k.csv --into shop.old --on id --option delimiter=,"),
    _Case({}, "merge nope.csv --into shop.old --on id", 3, "no file is at"),
    _Case({}, "scan shop.old -o none/x.csv", 8, "none/x.csv"),
    _Case({}, "scan shop.old --memory 10kB", 7, "raise --memory to 4 MB",
          "scan shop.old --memory 4MB"),
]  # fmt: skip

_DATABASES = [
    _Case({"x.db": _sqlite}, _load("x.db"), 3, "sqlite:///.*x.db[?]table=NAME",
          _load("sqlite:///x.db?table=t")),
    _Case({"x.sqlite": _sqlite}, _load("x.sqlite"), 3, "sqlite:///",
          _load("sqlite:///x.sqlite?table=t")),
    _Case({"x.csv": _sqlite}, _load("x.csv"), 3, "a SQLite database: load it as 'sqlite:///",
          _load("sqlite:///x.csv?table=t")),
    _Case({"x.duckdb": _duckdb}, _load("x.duckdb"), 3, "duckdb:///",
          _load("duckdb:///x.duckdb?table=t")),
    _Case({"x.db": _sqlite}, _load("sqlite:///x.db"), 2, "sqlite:///x.db[?]table=orders",
          _load("sqlite:///x.db?table=t")),
    _Case({"x.db": _sqlite}, _load("sqlite:///x.db?table=nope"), 3, "no table 'nope': it has t",
          _load("sqlite:///x.db?table=t")),
    _Case({}, _load("sqlite:///x.db?table=t"), 3, "no file is at 'x.db'"),
    _Case({"x.duckdb": _duckdb}, _load("sqlite:///x.duckdb?table=t"), 3, "duckdb:///",
          _load("duckdb:///x.duckdb?table=t")),
    _Case({"x.db": _sqlite}, _load("duckdb:///x.db?table=t"), 3, "sqlite:///",
          _load("sqlite:///x.db?table=t")),
    _Case({"x.duckdb": _duckdb}, _load("duckdb:///x.duckdb?table=nope"), 3, "nope does not exist"),
    _Case({"x.duckdb": _duckdb}, _load("duckdb:///x.duckdb?table=t", "--memory 32MB"), 7,
          "raise --memory to 33.6 MB", _load("duckdb:///x.duckdb?table=t", "--memory 33.6MB")),
    _Case({}, _load("jdbc:mysql://host/db?table=t"), 9, "adbc:DRIVER:URI"),
    _Case({}, _load("adbc:nope:host?table=t"), 9, "pip install adbc-driver-nope"),
    _Case({"x.db": _sqlite}, _load("sqlite:///x.db?table=t", "--incremental"), 2,
          "an incremental load reads files or tables", _load("sqlite:///x.db?table=t")),
]  # fmt: skip

_YAML = ".pyiceberg.yaml"
_SETTINGS = [
    _Case({_YAML: b"catalog:\n  default: [oops\n"}, "tables", 8, "line 2: braces and brackets"),
    _Case({_YAML: b"catalog:\n\tdefault:\n"}, "tables", 8, "line 2: a line begins with a tab"),
    _Case({_YAML: b"- a\n"}, "tables", 8, "no names of settings: write 'catalog:'"),
    _Case({_YAML: b"catalog:\n  default: x\n"}, "tables", 8, "Configure it in"),
    _Case({_YAML: b"catalog:\n  a:\n    uri: x\n  a:\n    uri: y\n"}, "tables", 8, "line 4"),
    _Case({_YAML: b"catalog:\n  default:\n    type: nope\n"}, "tables", 8, "Configure it in"),
]


def _prepare(folder: Path, files: dict[str, Content]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif callable(content):
            content(path)
        else:
            path.write_bytes(content)


def _run(run: Run, line: str | list[str]) -> Result:
    return run(*(line.split() if isinstance(line, str) else line), "-q")


@pytest.mark.parametrize("case", [*_FILES, *_OPTIONS, *_TABLES, *_DATABASES, *_SETTINGS], ids=repr)
def test_a_bad_input_has_its_exit_code_one_line_and_a_remedy_that_works(
    folder: Path, run: Run, case: _Case
) -> None:
    if case not in _SETTINGS:
        (folder / "old.csv").write_bytes(_GOOD)
        assert _run(run, _load("old.csv", into="shop.old")).exit_code == 0
    _prepare(folder, case.files)
    failed = _run(run, case.line)
    assert failed.exit_code == case.code, failed.stderr
    assert failed.stdout == ""
    assert failed.stderr.startswith("icestream: ")
    assert failed.stderr.count("\n") == 1, "one line, no traceback"
    assert "internal error" not in failed.stderr
    assert re.search(case.words, failed.stderr), failed.stderr
    if case.remedy is not None:
        again = _run(run, case.remedy)
        assert again.exit_code == 0, again.stderr


_ROWS = "id,v\n1,10\n2,20\n"
_READ: dict[str, tuple[dict[str, Content], str, str]] = {
    "a JSON array": ({"a.json": b'[{"id": 1, "v": 10}, {"id": 2, "v": 20}]'}, "a.json", ""),
    "an indented JSON array": (
        {"a.json": b'[\n {\n  "id": 1,\n  "v": 10\n },\n {"id": 2, "v": 20}\n]\n'}, "a.json", "",
    ),
    "a compressed JSON array": (
        {"a.json.gz": gzip.compress(b'[{"id": 1, "v": 10}, {"id": 2, "v": 20}]')}, "a.json.gz", "",
    ),
    "indented JSON objects": (
        {"a.json": b'{\n "id": 1,\n "v": 10\n}\n{\n "id": 2,\n "v": 20\n}\n'}, "a.json", "",
    ),
    "a byte order mark": ({"a.csv": b"\xef\xbb\xbf" + _GOOD}, "a.csv", ""),
    "semicolons": ({"a.csv": _GOOD.replace(b",", b";")}, "a.csv", ""),
    "tabs": ({"a.csv": _GOOD.replace(b",", b"\t")}, "a.csv", ""),
    "bars": ({"a.csv": _GOOD.replace(b",", b"|")}, "a.csv", ""),
    "a TSV file": ({"a.tsv": _GOOD.replace(b",", b"\t")}, "a.tsv", ""),
    "lines of Windows": ({"a.csv": _GOOD.replace(b"\n", b"\r\n")}, "a.csv", ""),
    "no end of the last line": ({"a.csv": _GOOD[:-1]}, "a.csv", ""),
    "UTF-16": ({"a.csv": _GOOD.decode().encode("utf-16")}, "a.csv", "--option encoding=utf-16"),
    "a header alone, beside rows": ({"d/a.csv": b"id,v\n", "d/b.csv": _GOOD}, "d", ""),
    "several formats": (
        {"d/a.csv": b"id,v\n1,10\n", "d/b.json": b'[{"id": 2, "v": 20}]', "d/c.md": b"x"}, "d", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "source", "more"), _READ.values(), ids=_READ.keys())
def test_an_input_that_may_mislead_is_read_as_it_is(
    folder: Path, run: Run, files: dict[str, Content], source: str, more: str
) -> None:
    _prepare(folder, files)
    loaded = _run(run, _load(source, more))
    assert loaded.exit_code == 0, loaded.stderr
    assert _run(run, "scan shop.new").stdout.replace('"', "") == _ROWS
    merged = _run(run, f"merge {source} --into shop.new --on id {more}")
    assert merged.exit_code == 0, merged.stderr
    assert "rows unchanged  2" in merged.stdout


def test_values_with_line_breaks_stay_whole_also_if_bad_records_are_set_aside(
    folder: Path, run: Run
) -> None:
    (folder / "a.csv").write_text('id,v\n1,"a\nb"\nx,"c\nd"\n2,e\n')
    loaded = _run(run, _load("a.csv", "--bad-records quarantine --type id=long --type v=string"))
    assert loaded.exit_code == 0, loaded.stderr
    assert _run(run, "scan shop.new").stdout == '"id","v"\n1,"a\nb"\n2,"e"\n'
    bad = _run(run, "scan shop.new_quarantine --columns line,record").stdout
    assert bad == '"line","record"\n4,"x,""c\nd"""\n'


def test_a_header_alone_loads_nothing_into_a_table_that_exists(folder: Path, run: Run) -> None:
    (folder / "a.csv").write_bytes(_GOOD)
    (folder / "b.csv").write_bytes(b"id,v\n")
    assert _run(run, _load("a.csv")).exit_code == 0
    assert _run(run, _load("b.csv")).exit_code == 0
    assert _run(run, "scan shop.new").stdout.replace('"', "") == _ROWS


def test_a_full_disk_is_named_with_a_remedy(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (folder / "a.csv").write_bytes(_GOOD)
    monkeypatch.setattr("icestream.pipeline.load.run_load", full)
    failed = _run(run, _load("a.csv"))
    assert failed.exit_code == 8
    assert failed.stderr.endswith("Free some space, or work in a folder on another disk\n")


def test_the_dry_run_of_a_table_shows_its_files(folder: Path, run: Run) -> None:
    (folder / "a.csv").write_bytes(_GOOD)
    assert _run(run, _load("a.csv")).exit_code == 0
    shown = _run(run, _load("table:shop.new", "--dry-run", into="shop.copy")).stdout
    assert "reads         1 file, " in shown
    assert " 0 B" not in shown
