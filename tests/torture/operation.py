"""One random change to a table: plain data that says what to do, and what a list of rows becomes.

An operation travels in the summary of the snapshot that it makes, so that the history of a table
tells which changes were made, and in which order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

import icestream as ice

PROPERTY = "torture.operation"
PARTS = 4
_IDS = 400
_COLUMNS = ("new1", "new2", "new3")
_MEMORY = "32MB"

# id, part, text, and the columns that were added, by name; nulls are left out.
Row = tuple[int, int, str, tuple[tuple[str, int], ...]]
Rows = Counter[Row]

_WEIGHTS = {
    "append": 5,
    "commit_files": 3,
    "delete": 3,
    "merge": 5,
    "merge_delete": 2,
    "overwrite_where": 3,
    "overwrite_partitions": 2,
    "overwrite": 1,
    "evolve": 2,
    "compact": 3,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """A change to a table with the columns id, part and text.

    Attributes:
        id: Unique in an attack; the texts of its rows begin with it.
        verb: What it does.
        ids: Ids of the rows that it adds.
        salt: Shifts the partitions of these rows.
        low: It removes rows with ids from here on, where it removes rows by id.
        high: Up to here, not included.
        write_mode: The write mode of a merge.
        column: The column that an evolution adds.
    """

    id: str
    verb: str
    ids: tuple[int, ...] = ()
    salt: int = 0
    low: int = 0
    high: int = 0
    write_mode: str = "copy-on-write"
    column: str = ""

    @classmethod
    def draw(cls, random: Random, name: str, *, partitioned: bool) -> Operation:
        """Think of an operation."""
        verb = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        if verb == "overwrite_partitions" and not partitioned:
            verb = "append"
        low = random.randrange(_IDS)
        first, step = random.randrange(_IDS), random.choice([1, 1, 3, 7])
        count = random.choice([1, 5, 40, 200])
        return cls(
            id=name,
            verb=verb,
            ids=tuple(sorted({(first + n * step) % _IDS for n in range(count)})),
            salt=random.randrange(PARTS),
            low=low,
            high=low + random.choice([1, 10, 80, _IDS]),
            write_mode=random.choice(["copy-on-write", "merge-on-read"]),
            column=random.choice(_COLUMNS),
        )

    @classmethod
    def parse(cls, text: str) -> Operation:
        """Read what `summary` wrote."""
        facts = json.loads(text)
        return cls(**{**facts, "ids": tuple(facts["ids"])})

    def summary(self) -> dict[str, str]:
        """The operation as a property of its snapshot."""
        return {PROPERTY: json.dumps(asdict(self), separators=(",", ":"))}

    # What a plain list of rows becomes

    def rows(self) -> list[Row]:
        """The rows that the operation brings."""
        added = ((self.column, self.salt),) if self.verb == "evolve" else ()
        return [(n, (n + self.salt) % PARTS, f"{self.id}:{n}", added) for n in self.ids]

    def applied(self, before: Rows) -> Rows:
        """The rows after the operation."""
        new = Counter(self.rows())
        if self.verb in ("append", "commit_files", "evolve"):
            return before + new
        if self.verb == "overwrite":
            return new
        if self.verb == "delete":
            return _kept(before, lambda row: not self.low <= row[0] < self.high)
        if self.verb == "overwrite_where":
            return _kept(before, lambda row: not self.low <= row[0] < self.high) + new
        if self.verb == "overwrite_partitions":
            parts = {row[1] for row in new}
            return _kept(before, lambda row: row[1] not in parts) + new
        if self.verb == "merge_delete":
            return _kept(before, lambda row: row[0] not in set(self.ids))
        if self.verb == "merge":
            return self._merged(before)
        return before  # compact

    def _merged(self, before: Rows) -> Rows:
        new = {row[0]: row for row in self.rows()}
        after: Rows = Counter()
        for row, count in before.items():
            # A column that the stream does not have keeps its value.
            after[(*new[row[0]][:3], row[3]) if row[0] in new else row] += count
        there = {row[0] for row in before}
        return after + Counter(row for row in new.values() if row[0] not in there)

    # The same, in a table

    def arrow(self) -> pa.Table:
        """The rows that the operation brings, as a stream."""
        rows = self.rows()
        columns: dict[str, Any] = {
            "id": pa.array([row[0] for row in rows], pa.int64()),
            "part": pa.array([row[1] for row in rows], pa.int64()),
            "text": pa.array([row[2] for row in rows], pa.string()),
        }
        if self.verb == "evolve":
            columns[self.column] = pa.array([self.salt] * len(rows), pa.int64())
        return pa.table(columns)

    def run(self, table: Table) -> tuple[int, ...]:
        """Carry it out.

        Returns:
            The ids of the snapshots that it says it made.
        """
        options: dict[str, Any] = {"properties": self.summary(), "memory": _MEMORY}
        between = f"id >= {self.low} and id < {self.high}"
        if self.verb == "compact":
            return ice.compact(table, **options).snapshot_ids
        if self.verb == "delete":
            report: Any = ice.delete(table, between, **options)
        elif self.verb == "append":
            report = ice.append(table, self.arrow().to_batches(max_chunksize=50), **options)
        elif self.verb == "evolve":
            report = ice.append(table, self.arrow(), schema_mode="evolve", **options)
        elif self.verb == "commit_files":
            files = ice.write_files(table, self.arrow(), memory=_MEMORY)
            report = ice.commit_files(table, files, **options)
        elif self.verb == "overwrite":
            report = ice.overwrite(table, self.arrow(), **options)
        elif self.verb == "overwrite_where":
            report = ice.overwrite(table, self.arrow(), where=between, **options)
        elif self.verb == "overwrite_partitions":
            report = ice.overwrite(table, self.arrow(), partitions="dynamic", **options)
        else:
            report = self._merge(table, options)
        return () if report.snapshot_id is None else (report.snapshot_id,)

    def _merge(self, table: Table, options: dict[str, Any]) -> ice.MergeReport:
        options["write_mode"] = self.write_mode
        if self.verb == "merge_delete":
            options.update(when_matched="delete", when_not_matched="ignore")
        return ice.merge(table, self.arrow(), on="id", **options)


def read_rows(batches: Iterable[pa.RecordBatch]) -> Rows:
    """Count the rows of a table as the model does."""
    found: Rows = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            base = (row.pop("id"), row.pop("part"), row.pop("text"))
            added = sorted((name, value) for name, value in row.items() if value is not None)
            found[(*base, tuple(added))] += 1
    return found


def _kept(rows: Rows, stays: Any) -> Rows:
    return Counter({row: count for row, count in rows.items() if stays(row)})
