"""Rows to merge, and what is in a table after it, as two readers see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import make_table, ordered
from tests.support.stored import folder_of, referenced_files, stored_files

Row = tuple[Any, ...]
MODES = ("copy-on-write", "merge-on-read")
QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def stream(rows: Iterable[Row], **more: pa.Array) -> pa.Table:
    """Rows of (id, part, text), and further columns."""
    listed = list(rows)
    columns = list(zip(*listed, strict=True)) or [(), (), ()]
    kinds = (("id", pa.int64()), ("part", pa.int64()), ("text", pa.string()))
    given = {
        name: pa.array(values, kind) for (name, kind), values in zip(kinds, columns, strict=True)
    }
    return pa.table({**given, **more})


def filled(catalog: Catalog, *files: Iterable[Row], **options: Any) -> Table:
    """A table of id, part and text with a data file for each of the lists of rows."""
    table = make_table(catalog, **{**QUICK, **options})
    for rows in files:
        ice.append(table, stream(rows))
    return table


def found(table: Table, *, branch: str | None = None) -> list[Row]:
    """Every row, in order: PyIceberg and our own scan must agree."""
    scan = table.refresh().scan()
    theirs = (scan.use_ref(branch) if branch else scan).to_arrow()
    names = [field.name for field in table.schema().fields]
    assert theirs.column_names == names
    expected = ordered(tuple(row.values()) for row in theirs.to_pylist())
    with ice.scan(table, branch=branch) as batches:
        ours = pa.table(batches)
    assert ordered(tuple(row.values()) for row in ours.to_pylist()) == expected
    return expected


def nothing_in_vain(table: Table) -> bool:
    """Whether every file in the table's folder is one that it refers to."""
    return stored_files(folder_of(table)) <= referenced_files(table)
