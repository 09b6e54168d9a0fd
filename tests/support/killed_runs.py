"""A pipeline that is killed at each of its steps in turn, and taken up again.

`python -m tests.support.killed_runs FOLDER` prints a line of JSON for each step: which it was, and
what was found after the kill and after the next run. Steps are the moments before and after each
commit and each write of the state. Children are forked by a process that has done nothing but
import, which is what makes many kills affordable.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.pipeline import run_state
from icestream.pipeline.inputs import checkpoint
from tests.support.catalogs import make_catalog
from tests.support.loads import batch, ids, make_table, ordered

_PIPELINE = """
name: shop
defaults: {engine: local, memory: 32MB}
loads:
  plain: {source: plain.parquet, into: db.plain}
  orders:
    source: orders.parquet
    into: db.orders
    tests: [{unique: id}]
  changes:
    source: changes.parquet
    into: db.orders
    mode: merge
    keys: id
    tests: [{unique: id}, {rows: {min: 5, max: 5}}]
  new:
    source: plain.parquet
    into: db.new
    tests: [{not_null: id}]
  files:
    source: files/*.parquet
    into: db.files
    incremental: true
    tests: [{unique: id}]
  copy: {source: "table:db.orders", into: db.copy, mode: replace}
"""
# What each table may show on its main branch, from the first load to the last.
_STATES: dict[str, list[list[tuple[int, int]] | None]] = {
    "db.plain": [[(0, 0)], [(0, 0), (5, 0)]],
    "db.orders": [
        [(0, 0), (1, 0)],
        [(0, 0), (1, 0), (2, 0), (3, 0)],
        [(0, 0), (1, 7), (2, 0), (3, 0), (4, 7)],
    ],
    "db.new": [None, [], [(5, 0)]],
    "db.files": [None, [], [(8, 0), (9, 0)]],
    "db.copy": [None, [(0, 0), (1, 7), (2, 0), (3, 0), (4, 7)]],
}
KILLED = 9


def _prepare(folder: Path) -> None:
    (folder / "files").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(_PIPELINE)
    pq.write_table(ids(5, 6), folder / "plain.parquet")
    pq.write_table(ids(2, 4), folder / "orders.parquet")
    pq.write_table(batch([(1, 7), (4, 7)]), folder / "changes.parquet")
    pq.write_table(ids(8, 9), folder / "files" / "a.parquet")
    pq.write_table(ids(9, 10), folder / "files" / "b.parquet")
    catalog = make_catalog(folder)
    ice.append(make_table(catalog, "db.plain"), ids(0, 1))
    ice.append(make_table(catalog, "db.orders"), ids(0, 2))
    catalog.close()


def _run(folder: Path) -> dict[str, str]:
    catalog = make_catalog(folder)
    report = ice.run(folder / "pipeline.yaml", catalog=catalog, state=folder / "state")
    catalog.close()
    return {outcome.load: outcome.status for outcome in report.loads}


class _Steps:
    """Counts steps, and kills the process at one of them."""

    def __init__(self, kill_at: int | None) -> None:
        self._kill_at = kill_at
        self.names: list[str] = []

    def watch(self) -> None:
        self._wrap(SqlCatalog, "commit_table")
        self._wrap(run_state, "write_json")
        self._wrap(checkpoint, "write_json")
        self._wrap(checkpoint.Checkpoint, "_append")

    def _wrap(self, owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            self._step(f"before {name}")
            answer = real(*args, **options)
            self._step(f"after {name}")
            return answer

        setattr(owner, name, watched)

    def _step(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._kill_at:
            os._exit(KILLED)


def _found(folder: Path) -> dict[str, Any]:
    """What is wrong with the tables, and how far each is."""
    catalog, wrong, stages = make_catalog(folder), [], {}
    for name, states in _STATES.items():
        if not catalog.table_exists(name):
            rows = None
        else:
            table = catalog.load_table(name)
            found = table.scan().to_arrow().to_pylist()
            rows = ordered((row["id"], row["part"]) for row in found)
            if set(table.metadata.refs) - {"main"} and states[-1] == rows:
                wrong.append(f"{name} is done and has {set(table.metadata.refs)}")
        if rows not in states:
            wrong.append(f"{name} has {rows}")
        stages[name] = states.index(rows) if rows in states else -1
    catalog.close()
    return {"wrong": wrong, "ended": all(stages[n] == len(s) - 1 for n, s in _STATES.items())}


def _in_child(work: Callable[[], Any]) -> tuple[int, Any]:
    """The exit code, and what the work returned."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            answer = json.dumps(work()).encode()
            os.write(writing, answer)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else None


def _killed(folder: Path, step: int | None) -> tuple[int, list[str] | None]:
    """Run until a step; or all steps."""

    def run() -> list[str]:
        steps = _Steps(step)
        steps.watch()
        _run(folder)
        return steps.names

    return _in_child(run)


def _taken_up(folder: Path) -> dict[str, Any]:
    """Look at what the kill has left, go on, and look again."""
    after_kill = _found(folder)
    state = folder / "state" / "runs" / "shop.json"
    completed = state.exists() and json.loads(state.read_text())["completed"]
    again = None if completed else _run(folder)  # the next run would be another one
    return {"after_kill": after_kill, "again": again, "at_end": _found(folder)}


def main(work: Path, first: int, every: int) -> None:
    """Kill at the first step that tells something, and at every so many from there on."""
    folder, kept = work / "shop", work / "kept"
    _in_child(lambda: _prepare(folder))
    shutil.copytree(folder, kept)
    _, steps = _killed(folder, None)
    assert steps is not None
    _, found = _in_child(lambda: _found(folder))
    print(json.dumps({"steps": len(steps), **found}), flush=True)  # noqa: T201
    # Nothing happens between the end of one step and the begin of another, but before commits.
    telling = [
        n for n, name in enumerate(steps, 1) if name.split()[0] == "after" or "commit" in name
    ]
    for number in telling[first::every]:
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        code, _ = _killed(folder, number)
        gone_on, found = _in_child(lambda: _taken_up(folder))
        line = {"step": f"{number}: {steps[number - 1]}", "codes": [code, gone_on], **(found or {})}
        print(json.dumps(line), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
