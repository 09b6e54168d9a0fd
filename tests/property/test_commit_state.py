"""Any series of loads leaves the rows that a plain list of rows says.

A table is appended to, overwritten, deleted from, rolled back, branched and evolved, in whatever
order Hypothesis thinks of; a Python list of rows goes the same way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import LongType

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import BY_PART, make_table, ordered
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import data_files, make_catalog

Row = tuple[Any, ...]  # id, part, text, and the columns that were added

_NUMBERS = st.one_of(st.none(), st.integers(-3, 6))
_ROWS = st.lists(st.tuples(_NUMBERS, _NUMBERS), max_size=6)
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
}
_SPECS = {
    "none": UNPARTITIONED_PARTITION_SPEC,
    "part": BY_PART,
}


@st.composite
def _filters(draw: st.DrawFn) -> tuple[str, Callable[[Row], bool]]:
    """A filter as text, and as Python: true, or not true (false or null)."""
    column = draw(st.sampled_from(["id", "part"]))
    position = 0 if column == "id" else 1
    if draw(st.integers(0, 5)) == 0:
        return f"{column} is null", lambda row: row[position] is None
    values = draw(st.lists(st.integers(-3, 6), min_size=1, max_size=3, unique=True))
    kind = draw(st.sampled_from([*_COMPARISONS, "in", "not in"]))
    if kind in _COMPARISONS:
        test = _COMPARISONS[kind]
        text = f"{column} {kind} {values[0]}"
        return text, lambda row: row[position] is not None and test(row[position], values[0])
    text = f"{column} {kind} ({', '.join(map(str, values))})"
    inside = kind == "in"
    return text, lambda row: row[position] is not None and (row[position] in values) == inside


def _is_void(field: PartitionField) -> bool:
    return isinstance(field.transform, VoidTransform)


class LoadsMachine(RuleBasedStateMachine):
    """The table and the list."""

    snapshots = Bundle("snapshots")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._catalog = make_catalog(Path(self._folder.name))
        self._table: Table
        self._rows: list[Row] = []
        self._added = 0  # columns
        self._commits = 0
        self._load_ids: dict[str, int] = {}

    def teardown(self) -> None:
        self._catalog.close()
        self._folder.cleanup()

    @initialize(spec=st.sampled_from(sorted(_SPECS)), version=st.sampled_from([1, 2]))
    def create(self, spec: str, version: int) -> None:
        self._table = make_table(self._catalog, spec=_SPECS[spec], version=version)
        self._version = version

    # Rows in

    def _arrow(self, rows: list[tuple[Any, Any]], *, columns: int | None = None) -> pa.Table:
        """Rows with a text, and a value for each column that was added."""
        count = self._added if columns is None else columns
        added = {f"new{n}": pa.array([n] * len(rows), pa.int64()) for n in range(count)}
        return pa.table(
            {
                "part": pa.array([row[1] for row in rows], pa.int64()),
                "text": pa.array([f"text {row[0]}" for row in rows], pa.string()),
                "id": pa.array([row[0] for row in rows], pa.int64()),
                **added,
            }
        )

    def _expected(self, rows: list[tuple[Any, Any]]) -> list[Row]:
        return [(*row, f"text {row[0]}", *range(self._added)) for row in rows]

    def _landed(self, report: ice.WriteReport, *, inserted: int, deleted: int) -> None:
        assert (report.rows_inserted, report.rows_deleted) == (inserted, deleted)
        self._commits += report.snapshot_id is not None

    @rule(rows=_ROWS)
    def append(self, rows: list[tuple[Any, Any]]) -> None:
        report = ice.append(self._table, self._arrow(rows).to_batches(max_chunksize=2))
        self._landed(report, inserted=len(rows), deleted=0)
        self._rows += self._expected(rows)

    @rule(rows=_ROWS)
    def append_in_two_stages(self, rows: list[tuple[Any, Any]]) -> None:
        files = ice.write_files(self._table.refresh(), self._arrow(rows))
        self._landed(ice.commit_files(self._table, files), inserted=len(rows), deleted=0)
        self._rows += self._expected(rows)

    @rule(rows=_ROWS, load_id=st.sampled_from("ab"))
    def append_once(self, rows: list[tuple[Any, Any]], load_id: str) -> None:
        report = ice.append(self._table, self._arrow(rows), load_id=load_id)
        in_history = self._load_ids.get(load_id) in self._history()
        assert report.already_committed == (in_history and self._load_ids.get(load_id) is not None)
        if not report.already_committed:
            self._landed(report, inserted=len(rows), deleted=0)
            assert report.snapshot_id is not None
            self._load_ids[load_id] = report.snapshot_id
            self._rows += self._expected(rows)

    # Rows out

    @rule(where=_filters())
    def delete(self, where: tuple[str, Callable[[Row], bool]]) -> None:
        gone = [row for row in self._rows if where[1](row)]
        report = ice.delete(self._table, where[0])
        self._landed(report, inserted=0, deleted=len(gone))
        self._rows = [row for row in self._rows if not where[1](row)]

    @rule(rows=_ROWS, where=_filters())
    def overwrite_where(
        self, rows: list[tuple[Any, Any]], where: tuple[str, Callable[[Row], bool]]
    ) -> None:
        gone = [row for row in self._rows if where[1](row)]
        report = ice.overwrite(self._table, self._arrow(rows), where=where[0])
        self._landed(report, inserted=len(rows), deleted=len(gone))
        self._rows = [row for row in self._rows if not where[1](row)] + self._expected(rows)

    @rule(rows=_ROWS)
    def overwrite_all(self, rows: list[tuple[Any, Any]]) -> None:
        report = ice.overwrite(self._table, self._arrow(rows))
        self._landed(report, inserted=len(rows), deleted=len(self._rows))
        self._rows = self._expected(rows)

    @precondition(lambda self: not all(map(_is_void, self._table.spec().fields)))
    @rule(rows=_ROWS)
    def overwrite_partitions(self, rows: list[tuple[Any, Any]]) -> None:
        keys = {self._key(row) for row in rows}
        gone = [row for row in self._rows if self._key(row) in keys]
        report = ice.overwrite(self._table, self._arrow(rows), partitions="dynamic")
        self._landed(report, inserted=len(rows), deleted=len(gone))
        self._rows = [r for r in self._rows if self._key(r) not in keys] + self._expected(rows)

    @property
    def _key(self) -> Callable[[Any], Any]:
        """A row's partition under the current spec, worked out by PyIceberg value by value."""
        fields = self._table.spec().fields
        positions = {1: 0, 2: 1}
        return lambda row: tuple(
            field.transform.transform(LongType())(row[positions[field.source_id]])
            for field in fields
        )

    @precondition(lambda self: self._version == 2 and self._rows)
    @rule(data=st.data())
    def delete_by_position(self, data: st.DataObject) -> None:
        """As another engine would: the first row of a file, if it is not deleted yet."""
        live = {t.file.file_path: t.delete_files for t in self._table.refresh().scan().plan_files()}
        files = [f for f in data_files(self._table) if not live.get(f.file_path)]
        if not files:
            return
        path = data.draw(st.sampled_from(sorted(f.file_path for f in files)))
        task = next(t for t in self._table.scan().plan_files() if t.file.file_path == path)
        first = next(iter(ice.read_splits([task], table=self._table))).slice(0, 1).to_pylist()[0]
        commit_position_deletes(self._table, {path: [0]})
        self._commits += 1
        self._rows.remove(tuple(first[f.name] for f in self._table.schema().fields))

    # The table changes

    @rule(rows=_ROWS)
    def evolve(self, rows: list[tuple[Any, Any]]) -> None:
        if self._added == 3 or not rows:
            return
        report = ice.append(
            self._table, self._arrow(rows, columns=self._added + 1), schema_mode="evolve"
        )
        self._landed(report, inserted=len(rows), deleted=0)
        self._rows = [(*row, None) for row in self._rows]
        self._added += 1
        self._rows += self._expected(rows)

    @rule(field=st.sampled_from(["part", "id_bucket", "part_tens"]))
    def change_spec(self, field: str) -> None:
        table = self._table.refresh()
        there = any(f.name == field for f in table.spec().fields)
        with table.update_spec() as update:
            if there:
                update.remove_field(field)
            elif field == "part":
                update.add_field("part", IdentityTransform(), "part")
            elif field == "id_bucket":
                update.add_field("id", BucketTransform(3), field)
            else:
                update.add_field("part", TruncateTransform(4), field)

    def _history(self) -> set[int]:
        found, metadata = set(), self._table.refresh().metadata
        snapshot = metadata.current_snapshot()
        while snapshot is not None:
            found.add(snapshot.snapshot_id)
            parent = snapshot.parent_snapshot_id
            snapshot = metadata.snapshot_by_id(parent) if parent is not None else None
        return found

    @rule(target=snapshots)
    def remember(self) -> Any:
        snapshot = self._table.refresh().current_snapshot()
        return (snapshot.snapshot_id if snapshot else None), list(self._rows), self._added

    @rule(then=snapshots)
    def roll_back(self, then: Any) -> None:
        snapshot_id, rows, added = then
        if snapshot_id is None:
            return
        self._table.refresh().manage_snapshots().set_current_snapshot(snapshot_id).commit()
        self._rows = [(*row, *[None] * (self._added - added)) for row in rows]

    # What must hold

    @invariant()
    def the_rows_are_those_of_the_list(self) -> None:
        if not hasattr(self, "_table"):
            return
        found = self._table.refresh().scan().to_arrow().to_pylist()
        names = ["id", "part", "text", *(f"new{n}" for n in range(self._added))]
        assert ordered(tuple(row[n] for n in names) for row in found) == ordered(self._rows)
        assert len(self._table.metadata.snapshots) == self._commits
        summary = self._table.metadata.current_snapshot()
        if summary is not None and self._version == 1:
            assert summary.summary is not None
            assert summary.summary["total-records"] == str(len(self._rows))

    @invariant()
    def nothing_is_stored_in_vain(self) -> None:
        if not hasattr(self, "_table"):
            return
        stored = stored_files(folder_of(self._table))
        assert stored - referenced_files(self._table) == set()


TestLoads = LoadsMachine.TestCase
TestLoads.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
