"""Small tables to load into, what others do to them meanwhile, and what became of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.stored import folder_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", LongType(), required=False),
    NestedField(3, "text", StringType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))

Rows = list[tuple[Any, Any]]


def make_table(
    catalog: Catalog,
    name: str = "db.t",
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    version: int = 2,
    **properties: str,
) -> Table:
    """A table of id, part and text; dots in the names of properties are double underscores."""
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()}
    return catalog.create_table(
        name, SCHEMA, partition_spec=spec, properties={"format-version": str(version), **given}
    )


def by(source_id: int, transform: Transform[Any, Any], name: str = "key") -> PartitionSpec:
    """A spec of one field."""
    return PartitionSpec(PartitionField(source_id, 1000, transform, name))


def batch(rows: Iterable[tuple[Any, Any]]) -> pa.Table:
    """Rows of (id, part), with a text made from the id."""
    listed = list(rows)
    return pa.table(
        {
            "id": pa.array([row[0] for row in listed], pa.int64()),
            "part": pa.array([row[1] for row in listed], pa.int64()),
            "text": pa.array([f"text {row[0]}" for row in listed], pa.string()),
        }
    )


def ids(start: int, stop: int, part: Any = 0) -> pa.Table:
    """Rows with ids from `start` on, all of one part."""
    return batch((number, part) for number in range(start, stop))


def rows_of(table: Table, *, branch: str | None = None) -> Rows:
    """(id, part) of every row, in order, as PyIceberg reads them; the texts are checked."""
    scan = table.refresh().scan()
    found = (scan.use_ref(branch) if branch else scan).to_arrow().to_pylist()
    assert all(row["text"] in (None, f"text {row['id']}") for row in found)
    names = [field.name for field in table.schema().fields if field.field_id in (1, 2)]
    return ordered(tuple(row[name] for name in names) for row in found)


def ordered(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Rows in an order that takes nulls."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def ids_of(table: Table, *, branch: str | None = None) -> list[Any]:
    """The ids, in order."""
    return [row[0] for row in rows_of(table, branch=branch)]


def snapshots_of(table: Table) -> list[int]:
    """The ids of all snapshots."""
    return [snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots]


def head_of(table: Table, branch: str = "main") -> Snapshot:
    """The newest snapshot of a branch."""
    snapshot = table.refresh().snapshot_by_name(branch)
    assert snapshot is not None
    return snapshot


def summary_of(table: Table, branch: str = "main") -> Summary:
    """What it says of itself."""
    summary = head_of(table, branch).summary
    assert summary is not None
    return summary


def listing(table: Table) -> set[str]:
    """Every file in the table's folder, but for its metadata JSON.

    A `SqlCatalog` of PyIceberg leaves the JSON of a commit that lost a race behind.
    """
    folder = folder_of(table)
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(".metadata.json")
    }


def markers_of(table: Table) -> list[str]:
    """The markers of open writes."""
    return [name for name in listing(table) if "in-flight" in name]


@contextmanager
def before_commits(catalog: Catalog, action: Callable[[], object], *, times: int = 1) -> Iterator:
    """Do something just before the catalog is asked to commit, the first `times` times.

    What the action raises, the commit raises.
    """
    commit, left = catalog.commit_table, [times]

    def commit_table(*args: Any, **kwargs: Any) -> Any:
        if left[0]:
            left[0] -= 1
            action()
        return commit(*args, **kwargs)

    with mock.patch.object(catalog, "commit_table", commit_table):
        yield
    assert left[0] == 0, f"the catalog was asked {left[0]} times less than expected"


@contextmanager
def after_commits(catalog: Catalog, action: Callable[[], object], *, times: int = 1) -> Iterator:
    """Do something just after the catalog has committed, before it answers."""
    commit, left = catalog.commit_table, [times]

    def commit_table(*args: Any, **kwargs: Any) -> Any:
        answer = commit(*args, **kwargs)
        if left[0]:
            left[0] -= 1
            action()
        return answer

    with mock.patch.object(catalog, "commit_table", commit_table):
        yield
    assert left[0] == 0, f"the catalog was asked {left[0]} times less than expected"


def raising(error: BaseException) -> Callable[[], None]:
    """An action that raises."""

    def action() -> None:
        raise error

    return action


def then(batches: Iterable[pa.Table], action: Callable[[], object]) -> Iterator[pa.RecordBatch]:
    """A stream after which something happens: between planning a load and committing it."""
    for table in batches:
        yield from table.to_batches()
    action()
