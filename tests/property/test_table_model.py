"""Any series of changes leaves the rows that a plain list of rows says, merges among them.

A table is appended to, overwritten, merged into in both write modes, deleted from, compacted, and
its schema and its partitions are changed, in whatever order Hypothesis thinks of. After each step
our scan and PyIceberg's find the rows of the list, and nothing is stored in vain. Where the peers'
environment is, DuckDB finds them as well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform

import icestream as ice
from tests.support.loads import BY_PART, make_table
from tests.support.merges import MODES, found
from tests.support.peer_process import PeerProcess
from tests.support.tables import make_catalog

_KEYS = st.one_of(st.none(), st.integers(0, 9))
_PARTS = st.integers(0, 2)
_TEXTS = st.sampled_from(["a", "b", None])
_ROWS = st.lists(st.tuples(_KEYS, _PARTS, _TEXTS), max_size=6)
_CHANGES = st.lists(st.tuples(_KEYS, _PARTS, _TEXTS, st.booleans()), min_size=1, max_size=8)
_SPECS = {"whole": UNPARTITIONED_PARTITION_SPEC, "part": BY_PART}


class TableMachine(RuleBasedStateMachine):
    """The table, and the list.

    Args:
        read_elsewhere: One more reader, which gets where the table's metadata is.
    """

    def __init__(self, read_elsewhere: Callable[[str], pa.Table] | None = None) -> None:
        super().__init__()
        self._read_elsewhere = read_elsewhere
        self._folder = tempfile.TemporaryDirectory()
        self._catalog = make_catalog(Path(self._folder.name))
        self._table: Table | None = None
        self._rows: list[tuple[Any, ...]] = []  # id, part, text, and the columns that were added
        self._added = 0
        self._commits = 0

    def teardown(self) -> None:
        self._catalog.close()
        self._folder.cleanup()

    @initialize(spec=st.sampled_from(sorted(_SPECS)), rows=_ROWS, mode=st.sampled_from(MODES))
    def create(self, spec: str, rows: list[Any], mode: str) -> None:
        self._table = make_table(self._catalog, spec=_SPECS[spec], write__delete__mode=mode)
        self.append(rows)

    def _arrow(self, rows: list[Any], *, added: int = 0) -> pa.Table:
        """Rows, with a value for some of the columns that were added."""
        return pa.table(
            {
                "id": pa.array([row[0] for row in rows], pa.int64()),
                "part": pa.array([row[1] for row in rows], pa.int64()),
                "text": pa.array([row[2] for row in rows], pa.string()),
                **{f"new{n}": pa.array([row[1] for row in rows], pa.int64()) for n in range(added)},
            }
        )

    def _full(self, row: tuple[Any, ...], *, added: int = 0) -> tuple[Any, ...]:
        """A new row of the list."""
        return (*row[:3], *[row[1]] * added, *[None] * (self._added - added))

    def _done(self, report: ice.WriteReport, *, changes: bool) -> None:
        """Each step that changes something is one snapshot."""
        assert (report.snapshot_id is not None) == changes
        self._commits += changes

    # Rows

    @rule(rows=_ROWS)
    def append(self, rows: list[Any]) -> None:
        report = ice.append(self._table, self._arrow(rows).to_batches(max_chunksize=2))
        self._done(report, changes=bool(rows))
        self._rows += [self._full(row) for row in rows]

    @rule(rows=_ROWS, part=_PARTS)
    def overwrite(self, rows: list[Any], part: int) -> None:
        left = [row for row in self._rows if row[1] != part]
        report = ice.overwrite(self._table, self._arrow(rows), where=f"part = {part}")
        assert report.rows_deleted == len(self._rows) - len(left)
        self._done(report, changes=bool(rows) or len(left) < len(self._rows))
        self._rows = left + [self._full(row) for row in rows]

    @rule(low=st.integers(0, 9), width=st.integers(0, 4))
    def delete(self, low: int, width: int) -> None:
        gone = [r for r in self._rows if r[0] is not None and low <= r[0] <= low + width]
        report = ice.delete(self._table, f"id >= {low} and id <= {low + width}")
        assert report.rows_deleted == len(gone)
        self._done(report, changes=bool(gone))
        self._rows = [row for row in self._rows if row not in gone]

    @rule(
        changes=_CHANGES,
        mode=st.sampled_from(MODES),
        matched=st.sampled_from(["update", "update", "update", "ignore", "delete"]),
        not_matched=st.sampled_from(["insert", "insert", "ignore"]),
        some=st.sampled_from([None, ["text"]]),
        skip=st.booleans(),
        data=st.data(),
    )
    def merge(
        self,
        changes: list[Any],
        mode: Any,
        matched: Any,
        not_matched: Any,
        some: list[str] | None,
        skip: bool,
        data: st.DataObject,
    ) -> None:
        added = data.draw(st.integers(0, self._added)) if self._added else 0
        rows = self._arrow(changes, added=added)
        rows = rows.append_column("gone", pa.array([row[3] for row in changes], pa.bool_()))
        report = ice.merge(
            self._table,
            rows.to_batches(max_chunksize=3),
            on="id",
            when_matched=matched,
            when_not_matched=not_matched,
            update_columns=some if matched == "update" else None,
            delete_when="gone = true",
            on_duplicate="last",
            null_keys="insert",
            skip_unchanged=skip,
            write_mode=mode,
        )
        last = {row[0]: row for row in changes if row[0] is not None}
        kept, counts = [], {"updated": 0, "deleted": 0, "unchanged": 0}
        for old in self._rows:
            row = last.get(old[0])
            if row is None or (matched == "ignore" and not row[3]):
                kept.append(old)
            elif row[3] or matched == "delete":
                counts["deleted"] += 1
            else:
                new = (*old[:2], row[2], *old[3:]) if some else self._updated(old, row, added)
                counts["unchanged" if skip and new == old else "updated"] += 1
                kept.append(new)
        known = {row[0] for row in self._rows}
        without = [row for row in changes if row[0] is None] + list(last.values())
        new_rows = [r for r in without if not r[3] and (r[0] is None or r[0] not in known)]
        if not_matched == "ignore":
            new_rows = []
        for name, count in counts.items():
            assert getattr(report, f"rows_{name}") == count, name
        assert report.rows_inserted == len(new_rows)
        assert report.rows_superseded == sum(r[0] is not None for r in changes) - len(last)
        self._done(report, changes=bool(new_rows or counts["updated"] or counts["deleted"]))
        self._rows = kept + [self._full(row, added=added) for row in new_rows]

    def _updated(self, old: tuple[Any, ...], row: Any, added: int) -> tuple[Any, ...]:
        """A row that was updated keeps what the stream does not have."""
        return (*row[:3], *[row[1]] * added, *old[3 + added :])

    # The table

    @rule()
    def compact(self) -> None:
        report = ice.compact(self._table)
        self._commits += len(report.snapshot_ids)
        assert report.groups == len(report.snapshot_ids)

    @precondition(lambda self: self._added < 2)
    @rule(change=st.tuples(st.integers(0, 9), _PARTS, _TEXTS), mode=st.sampled_from(MODES))
    def merge_and_add_a_column(self, change: Any, mode: Any) -> None:
        added = self._added + 1
        report = ice.merge(
            self._table,
            self._arrow([change], added=added),
            on="id",
            schema_mode="evolve",
            skip_unchanged=False,
            write_mode=mode,
        )
        self._done(report, changes=True)
        self._added = added
        old = [(*row, None) for row in self._rows]
        matches = [row for row in old if row[0] == change[0]]
        assert report.rows_updated == len(matches)
        new = self._full(change, added=added)
        self._rows = [new if row[0] == change[0] else row for row in old]
        self._rows += [] if matches else [new]

    @rule(field=st.sampled_from(["part", "id_bucket"]))
    def change_spec(self, field: str) -> None:
        there = any(f.name == field for f in self._table.refresh().spec().fields)
        with self._table.update_spec() as update:
            if there:
                update.remove_field(field)
            elif field == "part":
                update.add_field("part", IdentityTransform(), "part")
            else:
                update.add_field("id", BucketTransform(2), field)

    # What must hold

    @invariant()
    def all_readers_find_the_rows_of_the_list(self) -> None:
        if self._table is None:
            return
        rows = sorted(map(repr, self._rows))
        assert sorted(map(repr, found(self._table))) == rows
        if self._read_elsewhere is not None:
            theirs = self._read_elsewhere(self._table.metadata_location)
            assert theirs.column_names == [field.name for field in self._table.schema().fields]
            assert sorted(repr(tuple(row.values())) for row in theirs.to_pylist()) == rows
        assert len(self._table.metadata.snapshots) == self._commits

    @invariant()
    def nothing_is_stored_in_vain(self) -> None:
        if self._table is not None:
            report = ice.orphans(self._table, older_than=0)
            assert (report.count, report.kept_young, report.kept_in_flight) == (0, 0, 0)


_SETTINGS = settings(
    max_examples=6,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestTable = TableMachine.TestCase
TestTable.settings = _SETTINGS
TestTable.pytestmark = [pytest.mark.timeout(600)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_more_changes_are_those_of_the_list() -> None:
    run_state_machine_as_test(TableMachine, settings=settings(_SETTINGS, max_examples=30))


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_duckdb_finds_the_rows_of_the_list_too() -> None:
    with PeerProcess() as peers:
        run_state_machine_as_test(
            lambda: TableMachine(lambda metadata: peers.read("duckdb", metadata)),
            settings=_SETTINGS,
        )
