"""Incremental loads: exactly once, also after a kill."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.commit.outcome.load_id import batch_load_id
from icestream.errors import SourceError, StreamError
from icestream.pipeline.inputs.checkpoint import Checkpoint
from icestream.pipeline.request.load_spec import LoadSpec
from tests.support.load_cases import Load, orders


class Killed(BaseException):
    """As if the process had died there."""


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    pq.write_table(orders(0, 10), folder / "1.parquet")
    return folder


@pytest.fixture
def load(catalog: Catalog, tmp_path: Path) -> Load:
    def run(source: Any, into: str = "db.t", **options: Any) -> ice.LoadReport:
        options = {"incremental": True, "state": tmp_path / "state", **options}
        report = ice.load(source, into, engine="local", catalog=catalog, **options)
        assert isinstance(report, ice.LoadReport)
        return report

    return run


def ids(catalog: Catalog, name: str = "db.t") -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("moment", ["begin", "finish"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_run_after_a_kill_loads_what_is_missing_once(
    load: Load,
    catalog: Catalog,
    inbox: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    mode: Any,
) -> None:
    options: dict[str, Any] = {"mode": mode, "keys": "id" if mode == "merge" else None}
    load(inbox, **options)
    pq.write_table(orders(10, 10), inbox / "2.parquet")
    real = getattr(Checkpoint, moment)

    def killed(*arguments: Any) -> None:
        if moment == "begin":
            real(*arguments)  # the intent is on disk, and nothing is loaded
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, moment, killed)
        with pytest.raises(Killed):
            load(inbox, **options)
    assert len(ids(catalog)) == (10 if moment == "begin" else 20)
    pq.write_table(orders(20, 10), inbox / "3.parquet")
    load(inbox, **options)
    load(inbox, **options)
    assert ids(catalog) == list(range(30))
    assert len(catalog.load_table("db.t").metadata.snapshots) == 3


_ODD_NAMES = (
    "line\u2028separator.parquet",
    "next\u0085line.parquet",
    "form\ffeed.parquet",
    "new\nline.parquet",
    "100%25 per cent.parquet",
    "number #1?.parquet",
    "[a] *.parquet",
    "back\\slash.parquet",
    os.fsdecode(b"not utf-8 \xff\xe9.parquet"),
)


@pytest.mark.parametrize("source", ["{}", "{}/**/*.parquet"])
def test_a_file_of_any_name_is_loaded_once(
    load: Load, catalog: Catalog, tmp_path: Path, source: str
) -> None:
    folder = tmp_path / "odd"
    (folder / "deep\n").mkdir(parents=True)
    for number, name in enumerate(_ODD_NAMES):
        place = folder / "deep\n" if number % 2 else folder
        with open(place / name, "wb") as file:
            pq.write_table(orders(number, 1), file)
    assert load(source.format(folder)).rows_inserted == len(_ODD_NAMES)
    with open(folder / "one\u2028more.parquet", "wb") as file:
        pq.write_table(orders(len(_ODD_NAMES), 1), file)
    assert load(source.format(folder)).rows_inserted == 1
    for _ in range(2):
        assert load(source.format(folder)).snapshot_id is None
    assert ids(catalog) == list(range(len(_ODD_NAMES) + 1))


@pytest.mark.parametrize("name", _ODD_NAMES)
def test_a_load_of_a_file_of_any_name_is_resumed_after_a_kill(
    load: Load, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with open(tmp_path / name, "wb") as file:
        pq.write_table(orders(0, 3), file)

    def killed(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "finish", killed)
        with pytest.raises(Killed):
            load(tmp_path / name)
    report = load(tmp_path / name)
    assert report.snapshot_id is None
    assert ids(catalog) == [0, 1, 2]
    assert report.report_file is not None
    assert json.loads(Path(report.report_file).read_bytes())["rows_inserted"] == 0


def test_text_of_a_file_whose_name_is_not_utf8_is_read_and_bad_lines_name_it(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    name = os.fsdecode(b"\xff.csv.gz")
    with gzip.open(folder / name, "wb") as file:
        file.write(b"id,price\n1,2.5\nx\n3,4.5\n")
    report = load(folder, bad_records="quarantine")
    assert (report.rows_inserted, report.rows_quarantined) == (2, 1)
    (bad,) = catalog.load_table("db.t_quarantine").scan().to_arrow().to_pylist()
    assert bad["source"].endswith("\\xff.csv.gz")
    with pytest.raises(SourceError, match=r"udcff\.csv\.gz', line 3"):
        load(folder, "db.other")


def test_a_line_that_is_not_ascii_is_read(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "a\u2028b.parquet"
    pq.write_table(orders(0, 3), file)
    load(file)
    done = tmp_path / "state" / "checkpoints" / "db.t" / "done.jsonl"
    lines = [json.loads(line) for line in done.read_bytes().split(b"\n") if line]
    written = [json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines]
    done.write_bytes(b"".join(written))
    assert "\u2028".encode() in done.read_bytes()
    assert load(file).snapshot_id is None
    assert ids(catalog) == [0, 1, 2]


def test_a_checkpoint_of_the_version_before_is_read(
    load: Load, catalog: Catalog, inbox: Path, tmp_path: Path
) -> None:
    """It has loaded the first file, and was killed before it had loaded the second."""
    table = catalog.create_table("db.t", orders(0, 1).schema)
    ice.append(table, orders(0, 10))
    pq.write_table(orders(10, 10), inbox / "2.parquet")
    sizes = [(inbox / name).stat().st_size for name in ("1.parquet", "2.parquet")]
    for number in (1, 2):
        os.utime(inbox / f"{number}.parquet", ns=(0, 1_763_450_000_000_000_000 + number))
    folder = tmp_path / "state" / "checkpoints" / "db.t"
    folder.mkdir(parents=True)
    (folder / "checkpoint.json").write_text(
        f"""{{
  "id": "0123456789ab",
  "into": "db.t",
  "branch": "main",
  "sources": [
    "{inbox}"
  ],
  "table_uuid": "{table.metadata.table_uuid}"
}}
"""
    )
    (folder / "done.jsonl").write_text(
        f"""\
{{"path": "{inbox}/1.parquet", "bytes": {sizes[0]}, "modified_ns": 1763450000000000001}}
{{"load": 0}}
"""
    )
    (folder / "intent.json").write_text(
        f"""{{
  "number": 1,
  "files": [
    [
      {{
        "path": "{inbox}/2.parquet",
        "format": "parquet",
        "bytes": {sizes[1]},
        "modified_ns": 1763450000000000002,
        "partitions": [],
        "start": 0,
        "end": null
      }}
    ]
  ],
  "snapshots": [
    null
  ]
}}
"""
    )
    report = load(inbox)
    assert (report.load_id, report.rows_inserted) == (batch_load_id("load-0123456789ab", 1), 10)
    assert ids(catalog) == list(range(20))
    assert load(inbox).snapshot_id is None


def test_a_torn_line_of_the_checkpoint_does_no_harm(
    load: Load, catalog: Catalog, inbox: Path, tmp_path: Path
) -> None:
    load(inbox)
    done = tmp_path / "state" / "checkpoints" / "db.t" / "done.jsonl"
    with open(done, "a") as file:
        file.write('{"path": "/x", "by')
    pq.write_table(orders(10, 10), inbox / "2.parquet")
    load(inbox)
    load(inbox)
    assert ids(catalog) == list(range(20))
    lines = done.read_text().splitlines()
    assert sum("2.parquet" in line for line in lines) == 1


def test_a_load_that_fails_is_tried_again(load: Load, catalog: Catalog, inbox: Path) -> None:
    load(inbox)
    (inbox / "2.csv").write_text("id,price,country\nx,1,SE\n")
    for _ in range(2):
        with pytest.raises(SourceError, match="line 2"):
            load(inbox)
    (inbox / "2.csv").write_text("id,price,country\n10,1,SE\n")
    load(inbox)
    assert ids(catalog) == list(range(11))


def test_files_that_change_after_a_kill_are_loaded_as_they_are(
    load: Load, catalog: Catalog, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("icestream.pipeline.load_execution.LoadRun._run", killed)
        with pytest.raises(Killed):
            load(inbox)
    pq.write_table(orders(5, 10), inbox / "1.parquet")
    load(inbox)
    assert ids(catalog) == list(range(5, 15))


def test_a_file_that_changes_is_loaded_again(load: Load, catalog: Catalog, inbox: Path) -> None:
    load(inbox, mode="merge", keys="id")
    pq.write_table(orders(5, 10), inbox / "1.parquet")
    report = load(inbox, mode="merge", keys="id")
    assert (report.rows_read, report.rows_inserted) == (10, 5)
    assert ids(catalog) == list(range(15))


def test_a_checkpoint_belongs_to_one_load(
    load: Load, catalog: Catalog, inbox: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    load(inbox, checkpoint=folder)
    with pytest.raises(StreamError, match="belongs to another load: its into"):
        load(inbox, "db.other", checkpoint=folder)
    with pytest.raises(StreamError, match="belongs to another load: its sources"):
        load(tmp_path, checkpoint=folder)
    catalog.drop_table("db.t")
    with pytest.raises(StreamError, match="dropped"):
        load(inbox, checkpoint=folder)


def test_two_loads_do_not_use_a_checkpoint_at_once(load: Load, inbox: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    spec = LoadSpec.of(inbox, "db.t", incremental=True, checkpoint=folder)
    with (
        Checkpoint.open(None, spec, None),
        pytest.raises(StreamError, match="another load uses"),
    ):
        load(inbox, checkpoint=folder)


def test_an_inbox_may_be_empty(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    report = load(tmp_path / "inbox" / "*.parquet")
    assert (report.snapshot_id, report.rows_read) == (None, 0)
    assert catalog.list_tables("db") == []


def test_rows_of_a_table_that_change_are_an_error_that_says_so(
    load: Load, catalog: Catalog, inbox: Path
) -> None:
    load(inbox, "db.from", incremental=False)
    load("table:db.from", "db.to")
    table = catalog.load_table("db.from")
    ice.append(table, orders(10, 5))
    ice.compact(table, min_files=2)
    load("table:db.from", "db.to")
    assert ids(catalog, "db.to") == list(range(15))
    ice.delete(table, where="id = 3")
    with pytest.raises(StreamError, match="changes or deletes rows"):
        load("table:db.from", "db.to")


def test_watching_repeats_until_it_is_interrupted(
    load: Load, catalog: Catalog, inbox: Path
) -> None:
    seen: list[int | None] = []

    def told(report: ice.LoadReport) -> None:
        seen.append(report.rows_read)
        if len(seen) == 3:
            raise KeyboardInterrupt
        pq.write_table(orders(10 * len(seen), 10), inbox / f"{len(seen) + 1}.parquet")

    with pytest.raises(KeyboardInterrupt):
        load(inbox, watch=0.01, on_report=told)
    assert seen == [10, 10, 10]
    assert ids(catalog) == list(range(30))


def test_bad_records_of_a_killed_run_are_stored_once(
    load: Load, catalog: Catalog, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inbox / "2.csv").write_text("id,price,country\nx,1,SE\n10,1,SE\n")
    options: dict[str, Any] = {"bad_records": "quarantine", "schema": {"id": "long"}}

    def killed(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("icestream.pipeline.load_execution.LoadRun._quarantine", killed)
        with pytest.raises(Killed):
            load(inbox, **options)
    load(inbox, **options)
    load(inbox, **options)
    assert ids(catalog) == list(range(11))
    assert catalog.load_table("db.t_quarantine").scan().to_arrow().num_rows == 1


def test_what_is_done_is_plain_to_see(load: Load, inbox: Path, tmp_path: Path) -> None:
    load(inbox)
    lines = (tmp_path / "state" / "checkpoints" / "db.t" / "done.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert first["path"] == str(inbox / "1.parquet")
    assert not (tmp_path / "state" / "checkpoints" / "db.t" / "intent.json").exists()
