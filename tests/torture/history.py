"""The verdict on a table: every snapshot against a plain model, every file against the store."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

import icestream as ice
from tests.support.stored import referenced_files
from tests.torture.child import answer, read_journals
from tests.torture.operation import PROPERTY, Operation, Rows, read_rows
from tests.torture.place import Place, stored_keys

_MANY_SNAPSHOTS = ("compact",)


def examine(place: Place, folder: Path) -> tuple[list[str], dict[str, int]]:
    """Look at a table after an attack, in a process of its own.

    Args:
        place: The table.
        folder: Folder of the workers' journals.

    Returns:
        What is wrong, and some counts.
    """
    problems, counts = answer(lambda: _examined(place, folder), timeout_seconds=900)
    return problems, counts


def _examined(place: Place, folder: Path) -> tuple[list[str], dict[str, int]]:
    with place.opened() as catalog:
        table = place.load(catalog)
        problems = _storage_problems(table)
        snapshots = _snapshots(table)
        problems += _row_problems(table, snapshots)
        lines = read_journals(folder)
        problems += _journal_problems(snapshots, lines)
        outcomes = Counter(line["outcome"] for line in lines)
        return problems, {"snapshots": len(snapshots), **outcomes}


def _storage_problems(table: Table) -> list[str]:
    """After `orphans`, exactly the files that the table refers to are there."""
    try:
        ice.orphans(table, older_than=timedelta(0), delete=True, only_catalog=True)
        referenced = {path.partition("://")[2] or path for path in referenced_files(table)}
    except Exception as error:
        return [f"orphans: {error!r}"]
    stored = stored_keys(table)
    problems = [f"orphans left {path}" for path in sorted(stored - referenced)]
    return problems + [f"{path} is gone" for path in sorted(referenced - stored)]


def _snapshots(table: Table) -> list[Snapshot]:
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    parents = [each.parent_snapshot_id for each in snapshots]
    assert parents == [None, *(each.snapshot_id for each in snapshots[:-1])], "history has a gap"
    return snapshots


def _row_problems(table: Table, snapshots: list[Snapshot]) -> list[str]:
    """Replay the operations that the snapshots name, and compare the rows after each."""
    problems: list[str] = []
    rows: Rows = Counter()
    for snapshot in snapshots:
        operation = operation_of(snapshot)
        rows = operation.applied(rows)
        try:
            scan: Any = table.scan(snapshot_id=snapshot.snapshot_id)
            found = {"PyIceberg": read_rows(scan.to_arrow_batch_reader())}
            ours = ice.scan(table, snapshot_id=snapshot.snapshot_id, memory="64MB")
            found["icestream"] = read_rows(ours)
        except Exception as error:
            problems.append(f"snapshot {snapshot.snapshot_id} can't be read: {error!r}"[:500])
            continue
        for reader, got in found.items():
            if got != rows:
                lost, more = list((rows - got).items())[:3], list((got - rows).items())[:3]
                problems.append(
                    f"{operation.verb} {operation.id}, as {reader} reads it: "
                    f"{sum((rows - got).values())} rows are missing, such as {lost}; "
                    f"{sum((got - rows).values())} are too many, such as {more}"
                )
    return problems


def operation_of(snapshot: Snapshot) -> Operation:
    """The operation that made a snapshot."""
    assert snapshot.summary is not None
    text = snapshot.summary[PROPERTY]
    assert text is not None
    return Operation.parse(text)


def _journal_problems(snapshots: list[Snapshot], lines: list[dict[str, Any]]) -> list[str]:
    """What the operations said of themselves must be what the history says."""
    made: dict[str, list[int]] = {}
    verbs: dict[str, str] = {}
    for snapshot in snapshots:
        operation = operation_of(snapshot)
        made.setdefault(operation.id, []).append(snapshot.snapshot_id)
        verbs[operation.id] = operation.verb
    problems = [
        f"{verbs[name]} {name} was committed {len(found)} times"
        for name, found in made.items()
        if len(found) > 1 and verbs[name] not in _MANY_SNAPSHOTS
    ]
    for line in lines:
        name, found = line["operation"], made.get(line["operation"], [])
        if line["outcome"] in ("untyped", "threads"):
            problems.append(f"{name}: {line['error']}")
        elif line["outcome"] == "done" and list(line["snapshots"]) != found:
            problems.append(f"{name} said it made {line['snapshots']}, history has {found}")
        elif line["outcome"] == "refused" and found and verbs[name] not in _MANY_SNAPSHOTS:
            problems.append(f"{verbs[name]} {name} was committed, and said: {line['error']}")
    return problems
