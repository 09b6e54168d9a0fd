"""What Iceberg's Java runtime writes is read by icestream with the rows that Java finds."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

import icestream as ice
from tests.interop.written_tables import Writing
from tests.support.java_process import JavaSpark
from tests.support.plain_rows import Row, differences, plain_rows

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

_COLUMNS = "id BIGINT NOT NULL, category STRING, amount INT, day DATE, tags ARRAY<STRING>"
_names = itertools.count()


def _values(start: int, stop: int) -> str:
    """A query for rows with nulls in every column but `id`."""
    return (
        "SELECT id, CASE WHEN id % 6 != 0 THEN concat('c', id % 4) END AS category, "
        "CASE WHEN id % 8 != 0 THEN CAST(id * 7 % 50 - 20 AS INT) END AS amount, "
        "CASE WHEN id % 9 != 0 THEN date_add(DATE'2024-02-27', CAST(id % 4 AS INT)) END AS day, "
        "CASE WHEN id % 5 != 0 THEN array(CAST(id AS STRING), NULL) END AS tags "
        f"FROM range({start}, {stop})"
    )


def _changes(name: str) -> list[str]:
    """Rows deleted, updated and merged, in several snapshots."""
    return [
        f"INSERT INTO {name} {_values(0, 300)}",
        f"INSERT INTO {name} {_values(300, 400)}",
        f"DELETE FROM {name} WHERE id % 7 = 3",
        f"UPDATE {name} SET amount = -1, category = 'updated' WHERE id % 5 = 0",
        f"MERGE INTO {name} AS t USING ({_values(350, 450)}) AS s ON t.id = s.id "
        "WHEN MATCHED AND s.id % 3 = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET amount = 1000, day = NULL "
        "WHEN NOT MATCHED THEN INSERT *",
        f"DELETE FROM {name} WHERE id IN (1, 2, 351, 449)",
    ]


def _create(java: JavaSpark, columns: str = _COLUMNS, by: str = "", **properties: Any) -> str:
    name = f"db.java_{next(_names)}"
    partitioned = f"PARTITIONED BY ({by}) " if by else ""
    options = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    java.sql(
        f"CREATE TABLE {name} ({columns}) USING iceberg {partitioned}TBLPROPERTIES ({options})"
    )
    return name


def _modes(version: int, mode: str, **more: str) -> dict[str, str]:
    return {
        "format-version": str(version),
        **{f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")},
        **more,
    }


def _ours(java: JavaSpark, name: str, **options: Any) -> list[Row]:
    table = java.catalog().load_table(name)
    scan = ice.scan(table, **options)
    return plain_rows(pa.Table.from_batches(scan, schema=scan.schema), table.schema())


def _javas(java: JavaSpark, name: str, at: str = "") -> list[Row]:
    schema = java.catalog().load_table(name).schema()
    return plain_rows(java.query(f"SELECT * FROM {name} {at}"), schema)


def _same(java: JavaSpark, name: str) -> list[Row]:
    rows = _javas(java, name)
    assert differences(_ours(java, name), rows) == []
    return rows


def _files(table: Table, content: DataFileContent) -> set[str]:
    """The formats of a table's live files of a kind."""
    snapshot = table.current_snapshot()
    assert snapshot
    return {
        entry.data_file.file_format.value
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.content == content
    }


@pytest.mark.parametrize("by", ["", "bucket(3, id), day"], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
def test_rows_deleted_updated_and_merged_are_read(java, version, mode, file_format, by):
    properties = _modes(version, mode, **{"write.format.default": file_format})
    name = _create(java, by=by, **properties)
    java.sql(*_changes(name))
    rows = _same(java, name)
    assert len(rows) > 250
    deletes = _files(java.catalog().load_table(name), DataFileContent.POSITION_DELETES)
    expected = {2: file_format.upper(), 3: "PUFFIN"}[version]
    assert deletes == ({expected} if mode == "merge-on-read" else set())


@pytest.mark.parametrize("granularity", ["file", "partition"])
@pytest.mark.parametrize("deletes", ["parquet", "orc"])
def test_position_deletes_of_every_format_are_read(java, deletes, granularity):
    properties = {
        "write.delete.format.default": deletes,
        "write.delete.granularity": granularity,
        "write.target-file-size-bytes": "2000",
    }
    name = _create(java, **_modes(2, "merge-on-read", **properties))
    java.sql(*_changes(name))
    assert _files(java.catalog().load_table(name), DataFileContent.POSITION_DELETES) == {
        deletes.upper()
    }
    _same(java, name)


def test_position_deletes_in_avro_are_refused_by_name(java):
    properties = {"write.delete.format.default": "avro"}
    name = _create(java, **_modes(2, "merge-on-read", **properties))
    java.sql(*_changes(name))
    with pytest.raises(ice.UnsupportedFeatureError, match="AVRO delete file"):
        _ours(java, name)


def test_a_table_upgraded_with_position_deletes_is_read_beside_deletion_vectors(java):
    name = _create(java, **_modes(2, "merge-on-read"))
    java.sql(
        *_changes(name),
        f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')",
        f"DELETE FROM {name} WHERE id % 11 = 5",
        f"INSERT INTO {name} {_values(500, 520)}",
    )
    _same(java, name)


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("version", [1, 2])
def test_every_type_is_read(java, version, file_format):
    """Java copies rows that we wrote: they must come back as we made them."""
    writing = Writing(java.catalog(), version, without=("time",))
    source = writing.table("all_types")
    copy = writing.create(writing.types, **{"write.format.default": file_format})
    name = ".".join(copy.name())
    java.sql(f"INSERT INTO {name} SELECT * FROM {source.name}")
    assert _files(copy.refresh(), DataFileContent.DATA) == {file_format.upper()}
    assert differences(_ours(java, name), source.rows) == []


def test_an_avro_data_file_is_refused_by_name(java):
    name = _create(java, **{"write.format.default": "avro"})
    java.sql(f"INSERT INTO {name} {_values(0, 10)}")
    with pytest.raises(ice.UnsupportedFeatureError, match="AVRO data file"):
        _ours(java, name)


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.parametrize("version", [2, 3])
def test_a_compacted_table_is_read(java, version, mode):
    name = _create(java, by="bucket(3, id)", **_modes(version, mode))
    java.sql(*_changes(name))
    before = _same(java, name)
    java.sql(
        f"CALL system.rewrite_data_files(table => '{name}', strategy => 'sort', "
        "sort_order => 'amount', options => map('rewrite-all', 'true'))"
    )
    assert differences(_same(java, name), before) == []
    java.sql(
        f"DELETE FROM {name} WHERE id % 13 = 1",
        f"CALL system.rewrite_position_delete_files(table => '{name}', "
        "options => map('rewrite-all', 'true'))",
        f"CALL system.rewrite_manifests('{name}')",
        f"CALL system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)",
    )
    after = [row for row in before if row["id"] % 13 != 1]
    assert differences(_same(java, name), after) == []


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_evolved_schema_is_read(java, version, file_format):
    columns = "id BIGINT, old STRING, n INT, f FLOAT, d DECIMAL(9, 2), s STRUCT<a: INT, b: STRING>"
    properties = {"format-version": version, "write.format.default": file_format}
    name = _create(java, columns, **properties)
    java.sql(f"INSERT INTO {name} VALUES (0, 'x', 1, 1.5, 1.25, struct(1, 'b')), "
             "(1, NULL, NULL, NULL, NULL, NULL)")  # fmt: skip
    steps = [
        "ALTER COLUMN n TYPE BIGINT",
        "ALTER COLUMN f TYPE DOUBLE",
        "ALTER COLUMN d TYPE DECIMAL(20, 2)",
        "ADD COLUMN s.c ARRAY<STRUCT<x: INT>>",
        "RENAME COLUMN s.a TO renamed",
        "ADD COLUMN first STRING FIRST",
        "DROP COLUMN old",
        "ADD COLUMN old BIGINT AFTER n",
    ]
    for number, step in enumerate(steps):
        java.sql(f"ALTER TABLE {name} {step}", f"INSERT INTO {name} (id, n) VALUES "
                 f"({number + 10}, {number})")  # fmt: skip
    java.sql(
        f"INSERT INTO {name} (id, first, old, n, f, d, s) VALUES (30, 'y', 2, 5000000000, 2.5, "
        "99999999999.25, named_struct('renamed', 3, 'b', 'z', 'c', array(named_struct('x', 4))))"
    )
    assert len(_same(java, name)) == 3 + len(steps)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_evolved_partitioning_is_read(java, version):
    name = _create(java, **_modes(version, "merge-on-read" if version > 1 else "copy-on-write"))
    steps = [
        "ADD PARTITION FIELD category",
        "ADD PARTITION FIELD month(day) AS by_month",
        "REPLACE PARTITION FIELD category WITH truncate(2, category) AS short",
        "DROP PARTITION FIELD by_month",
    ]
    java.sql(f"INSERT INTO {name} {_values(0, 50)}")
    for number, step in enumerate(steps, 1):
        java.sql(
            f"ALTER TABLE {name} {step}",
            f"INSERT INTO {name} {_values(number * 50, number * 50 + 50)}",
            f"DELETE FROM {name} WHERE id % 10 = {number}",
        )
    rows = _same(java, name)
    # Each step deleted from the rows that were there by then.
    gone = {i for step in range(1, 5) for i in range(step * 50 + 50) if i % 10 == step}
    assert [row["id"] for row in rows] == [i for i in range(250) if i not in gone]
    for where in ("category = 'c1'", "day = '2024-02-29'", "id = 107"):
        found = _javas(java, name, f"WHERE {where}")
        assert found
        assert differences(_ours(java, name, where=where), found) == []


def test_branches_and_tags_are_read(java):
    name = _create(java, **_modes(2, "merge-on-read"))
    java.sql(
        f"INSERT INTO {name} {_values(0, 20)}",
        f"ALTER TABLE {name} CREATE BRANCH audit",
        f"ALTER TABLE {name} CREATE TAG early",
        f"INSERT INTO {name}.branch_audit {_values(100, 120)}",
        f"DELETE FROM {name}.branch_audit WHERE id % 2 = 0",
        f"DELETE FROM {name} WHERE id < 5",
    )
    counts = {}
    for kind, ref in [("branch", "audit"), ("tag", "early"), ("branch", "main")]:
        rows = _javas(java, name, f"VERSION AS OF '{ref}'")
        assert differences(_ours(java, name, **{kind: ref}), rows) == []
        counts[ref] = len(rows)
    assert counts == {"audit": 20, "early": 20, "main": 15}
