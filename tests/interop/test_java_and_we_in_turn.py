"""icestream and Iceberg's Java runtime change one table in turn; both read it after every step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from tests.support.java_process import JavaSpark
from tests.support.partitions import partition_rows, partition_schema
from tests.support.plain_rows import Row, differences, plain_rows

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_MODES = ("copy-on-write", "merge-on-read")


class _SharedTable:
    """A table, the rows that it must have, and its two readers."""

    def __init__(self, java: JavaSpark, name: str, by: str, javas_mode: str) -> None:
        self.java, self.name = java, name
        partitioned = f"PARTITIONED BY ({by}) " if by else ""
        modes = ", ".join(
            f"'write.{verb}.mode' = '{javas_mode}'" for verb in ("delete", "update", "merge")
        )
        java.sql(
            f"CREATE TABLE {name} (id BIGINT NOT NULL, category STRING, amount INT, day DATE, "
            f"at TIMESTAMP_NTZ) USING iceberg {partitioned}"
            f"TBLPROPERTIES ('format-version' = '2', {modes})"
        )
        self.table: Table = java.catalog().load_table(name)
        self.rows: dict[int, Row] = {}

    def ours(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """One of icestream's verbs on the table."""
        return verb(self.table, *arguments, **options)

    def keep(self, wanted: Callable[[Row], bool]) -> None:
        """Expect other rows to be gone."""
        self.rows = {key: row for key, row in self.rows.items() if wanted(row)}

    def put(self, rows: list[Row]) -> None:
        """Expect rows to be there, in place of others with their ids."""
        self.rows |= {row["id"]: row for row in rows}

    def check(self, step: str) -> None:
        """Both readers must find the rows, and Java the counts that the summary has."""
        expected = [self.rows[key] for key in sorted(self.rows)]
        schema = self.table.refresh().schema()
        scan = ice.scan(self.table)
        here = plain_rows(pa.Table.from_batches(scan, schema=scan.schema), schema)
        assert (step, "icestream", differences(here, expected)) == (step, "icestream", [])
        there = plain_rows(self.java.query(f"SELECT * FROM {self.name}"), schema)
        assert (step, "Java", differences(there, expected)) == (step, "Java", [])
        snapshot = self.table.current_snapshot()
        assert snapshot
        assert snapshot.summary
        assert self._counted() == {
            name: int(snapshot.summary[name] or 0)
            for name in ("total-data-files", "total-records", "total-delete-files")
        }

    def _counted(self) -> dict[str, int]:
        [counts] = self.java.query(
            "SELECT count_if(content = 0) AS `total-data-files`, "
            "coalesce(sum(record_count) FILTER (WHERE content = 0), 0) AS `total-records`, "
            f"count_if(content = 1) AS `total-delete-files` FROM {self.name}.files"
        ).to_pylist()
        return counts


def _arrow(rows: list[Row]) -> pa.Table:
    schema = schema_to_pyarrow(partition_schema(), include_field_ids=False)
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.mark.parametrize(
    "by", ["", "bucket(3, id), category"], ids=["unpartitioned", "partitioned"]
)
@pytest.mark.parametrize("javas_mode", _MODES)
def test_rows_are_right_for_both_after_every_step(java, javas_mode, by):
    name = f"db.in_turn_{_MODES.index(javas_mode)}_{len(by)}"
    shared = _SharedTable(java, name, by, javas_mode)

    rows = partition_rows(0, 200)
    shared.ours(ice.append, _arrow(rows))
    shared.put(rows)
    shared.check("we append")

    java.sql(
        f"MERGE INTO {name} AS t USING (SELECT * FROM {name} WHERE id % 3 = 0 UNION ALL "
        f"SELECT id + 200, category, amount, day, at FROM {name} WHERE id < 50) AS s "
        "ON t.id = s.id WHEN MATCHED AND s.id % 2 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET amount = 5 WHEN NOT MATCHED THEN INSERT *"
    )
    shared.keep(lambda row: row["id"] % 6 != 0)
    shared.put([{**row, "amount": 5} for row in shared.rows.values() if row["id"] % 6 == 3])
    shared.put([{**row, "id": row["id"] + 200} for row in rows[:50]])
    shared.check("Java merges")

    for number, mode in enumerate(_MODES):
        changed = [{**row, "amount": number} for row in partition_rows(100 + 50 * number, 260)]
        report = shared.ours(ice.merge, _arrow(changed), on="id", write_mode=mode)
        assert (report.delete_files_added > 0) == (mode == "merge-on-read")
        shared.put(changed)
        shared.check(f"we merge, {mode}")

    java.sql(
        f"UPDATE {name} SET category = 'java' WHERE id BETWEEN 90 AND 210",
        f"DELETE FROM {name} WHERE id % 10 = 7",
    )
    shared.put([{**r, "category": "java"} for r in shared.rows.values() if 90 <= r["id"] <= 210])
    shared.keep(lambda row: row["id"] % 10 != 7)
    shared.check("Java updates and deletes")

    java.sql(
        f"CALL system.rewrite_data_files(table => '{name}', options => "
        "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    )
    shared.check("Java compacts")

    for mode, last in zip(_MODES, (3, 8), strict=True):
        with shared.table.refresh().transaction() as transaction:
            transaction.set_properties({"write.delete.mode": mode})
        shared.ours(ice.delete, " or ".join(f"id = {i}" for i in range(last, 260, 10)))
        shared.keep(lambda row, last=last: row["id"] % 10 != last)
        shared.check(f"we delete, {mode}")

    java.sql(f"INSERT INTO {name} SELECT id + 1000, category, amount, day, at FROM {name}")
    shared.put([{**row, "id": row["id"] + 1000} for row in shared.rows.values()])
    shared.check("Java appends")

    shared.ours(ice.compact)
    shared.check("we compact")
    assert shared.table.current_snapshot().summary.operation == Operation.REPLACE

    java.sql(f"DELETE FROM {name} WHERE id >= 1200")
    shared.keep(lambda row: row["id"] < 1200)
    shared.check("Java deletes from what we compacted")


def test_each_evolves_the_table_that_the_other_goes_on_with(java):
    name = "db.evolved_in_turn"
    shared = _SharedTable(java, name, "", "merge-on-read")
    shared.ours(ice.append, _arrow(partition_rows(0, 20)))
    java.sql(
        f"ALTER TABLE {name} ADD COLUMN note STRING",
        f"ALTER TABLE {name} ALTER COLUMN amount TYPE BIGINT",
        f"ALTER TABLE {name} ADD PARTITION FIELD category",
        f"INSERT INTO {name} VALUES (20, 'red', 5000000000, NULL, NULL, 'wide')",
    )
    shared.put([{**row, "note": None} for row in partition_rows(0, 20)])
    wide = {"category": "red", "amount": 5000000000, "day": None, "at": None, "note": "wide"}
    shared.put([{"id": 20, **wide}])
    shared.check("Java evolves")

    more = pa.table({"id": [3, 21], "note": ["three", "new"], "extra": [1.5, None]})
    shared.ours(ice.merge, more, on="id", schema_mode="evolve", write_mode="merge-on-read")
    nothing = {"category": None, "amount": None, "day": None, "at": None}
    shared.put([{**row, "extra": None} for row in shared.rows.values()])
    shared.put([{**shared.rows[3], "note": "three", "extra": repr(1.5)}])
    shared.put([{"id": 21, **nothing, "note": "new", "extra": None}])
    shared.check("we evolve")

    java.sql(f"UPDATE {name} SET extra = 2.5 WHERE id IN (3, 4, 21)")
    shared.put([{**shared.rows[key], "extra": repr(2.5)} for key in (3, 4, 21)])
    shared.check("Java updates the new column")


def test_a_branch_that_one_makes_is_written_by_the_other(java):
    name = "db.branch_in_turn"
    shared = _SharedTable(java, name, "", "copy-on-write")
    rows = partition_rows(0, 30)
    shared.ours(ice.append, _arrow(rows[:10]))
    java.sql(f"ALTER TABLE {name} CREATE BRANCH audit")
    shared.ours(ice.append, _arrow(rows[10:20]), branch="audit")
    java.sql(f"DELETE FROM {name}.branch_audit WHERE id < 5")
    shared.ours(ice.merge, _arrow(rows[15:30]), on="id", branch="audit")
    shared.put(rows[:10])
    shared.check("main has not moved")
    java.sql(f"CALL system.fast_forward('{name}', 'main', 'audit')")
    shared.put(rows)
    shared.keep(lambda row: row["id"] >= 5)
    shared.check("the branch was published")


def test_neither_takes_a_file_of_the_other_for_an_orphan(java):
    """Java calls a folder `file:/...` where we call it `file:///...`."""
    name = "db.orphans_in_turn"
    shared = _SharedTable(java, name, "category", "merge-on-read")
    shared.ours(ice.append, _arrow(partition_rows(0, 40)))
    java.sql(f"DELETE FROM {name} WHERE id % 4 = 1", f"CALL system.rewrite_manifests('{name}')")
    changed = _arrow(partition_rows(20, 60))
    shared.ours(ice.merge, changed, on="id", write_mode="merge-on-read")
    folder = Path(urlparse(shared.table.refresh().location()).path)
    _age(folder)
    assert _orphans_of_java(java, name) == set()
    assert ice.orphans(shared.table).files == ()

    stray = folder / "data" / "stray.parquet"
    stray.write_bytes(b"nobody's")
    _age(folder)
    assert _orphans_of_java(java, name) == {stray}
    assert [Path(urlparse(file.path).path) for file in ice.orphans(shared.table).files] == [stray]


def _orphans_of_java(java: JavaSpark, name: str) -> set[Path]:
    found = java.query(f"CALL system.remove_orphan_files(table => '{name}', dry_run => true)")
    return {Path(urlparse(path).path) for path in found["orphan_file_location"].to_pylist()}


def _age(folder: Path) -> None:
    """Make files look a month old: young ones are nobody's orphans yet."""
    month_ago = time.time() - 30 * 86_400
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (month_ago, month_ago))
