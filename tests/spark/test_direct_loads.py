"""Loads whose tasks read the sources themselves: no row passes through the JVM."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.write_files import write_stream
from icestream.pipeline.engines import direct_source, spark_engine
from icestream.pipeline.engines.spark_files import FileFrames
from icestream.pipeline.inputs.load_input import LoadInput
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.spark.writing.table_write import PlannedWrite
from icestream.write.sources.file_columns import KnownTypes, columns_of
from icestream.write.sources.source_file import find_files
from tests.support.load_cases import orders

_ROWS = 3000


def _load(catalog: Catalog, spark: Any, *arguments: Any, **options: Any) -> ice.LoadReport:
    report = ice.load(*arguments, catalog=catalog, spark=spark, state="", **options)
    assert isinstance(report, ice.LoadReport)
    return report


def _rows(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    return sorted(catalog.load_table(name).scan().to_arrow().to_pylist(), key=lambda r: r["id"])


def _arrow(rows: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows)


def _json(rows: pa.Table, path: Path) -> None:
    import json

    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows.to_pylist()))


_WRITERS: dict[str, Any] = {
    "parquet": pq.write_table,
    "orc": orc.write_table,
    "arrow": _arrow,
    "csv": pacsv.write_csv,
    "jsonl": _json,
}


# A merge gives the same rows as an append to an empty table.
_MODES = pytest.mark.parametrize(
    "mode",
    [
        pytest.param({}, id="append"),
        pytest.param({"mode": "merge", "keys": "id"}, id="merge", marks=pytest.mark.slow),
    ],
)


@pytest.fixture
def no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a load fail that reads a source as a DataFrame."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a source is read as a DataFrame")

    monkeypatch.setattr(spark_engine, "source_frame", refuse)


@pytest.fixture
def many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small files as large ones are."""
    monkeypatch.setattr(direct_source, "LEAST_BYTES_PER_TASK", 1000)


@_MODES
@pytest.mark.usefixtures("no_frames", "many_tasks")
def test_every_format_and_a_table_are_read_by_tasks(
    spark: Any, catalog: Catalog, tmp_path: Path, mode: dict[str, Any]
) -> None:
    sources: list[Any] = []
    for number, (suffix, write) in enumerate(_WRITERS.items()):
        sources.append(tmp_path / f"a.{suffix}")
        write(orders(number * _ROWS, _ROWS), sources[-1])
    table = catalog.create_table("db.source", orders(0, 1).schema)
    ice.append(table, orders(len(_WRITERS) * _ROWS, _ROWS))
    sources.append("table:db.source")
    report = _load(catalog, spark, sources, "db.t", **mode)
    assert report.direct
    assert report.rows_read == report.rows_inserted == 6 * _ROWS
    assert mode or report.files_added > 1, "several tasks"
    assert _rows(catalog, "db.t") == orders(0, 6 * _ROWS).to_pylist()
    assert report.peak_worker_bytes
    assert report.peak_bytes_held <= report.memory_limit_bytes


_RULES: dict[str, Any] = {
    "select": [
        {"name": "key", "from": "id", "type": "string"},
        "id",
        {"name": "cost", "from": "price", "type": "decimal(10,2)"},
        {"name": "origin", "value": "shop"},
    ],
    "where": "id >= 10 and country = 'NO'",
    "schema": {"id": "long", "price": "double"},  # of CSV, as in the other files
}


@_MODES
@pytest.mark.usefixtures("no_frames", "many_tasks")
def test_tasks_filter_rows_and_choose_columns_themselves(
    spark: Any, catalog: Catalog, tmp_path: Path, mode: dict[str, Any]
) -> None:
    """The same rows as in this process, and no others are read from Parquet files and tables."""
    sources: list[Any] = []
    for number, (suffix, write) in enumerate(_WRITERS.items()):
        sources.append(tmp_path / f"a.{suffix}")
        write(orders(number * _ROWS, _ROWS), sources[-1])
    table = catalog.create_table("db.source", orders(0, 1).schema)
    ice.append(table, orders(len(_WRITERS) * _ROWS, _ROWS))
    sources.append("table:db.source")
    rules = {**_RULES, **mode}
    report = _load(catalog, spark, sources, "db.t", **rules)
    assert report.direct
    assert report.rows_read == 6 * _ROWS
    local = _load(catalog, None, sources, "db.local", engine="local", **rules)
    assert (local.rows_read, local.rows_inserted) == (report.rows_read, report.rows_inserted)
    assert _rows(catalog, "db.t") == _rows(catalog, "db.local")
    schemas = [catalog.load_table(name).schema() for name in ("db.t", "db.local")]
    assert schemas[0].as_struct() == schemas[1].as_struct()
    again = _load(catalog, spark, sources, "db.t", **rules)
    assert again.status == ("unchanged" if mode else "already loaded")
    other = _load(catalog, spark, sources, "db.t", **{**rules, "where": "id = 1"})
    assert (other.status, other.rows_inserted) == ("loaded", 1)


_SQL = "SELECT id, upper(country) || '!' AS name, price + 1 AS more FROM source WHERE id % 2 = 0"


@pytest.mark.usefixtures("no_frames", "many_tasks")
def test_duckdb_runs_row_local_sql_in_the_tasks_that_read_and_write(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    for number in range(4):
        pq.write_table(orders(number * _ROWS, _ROWS), tmp_path / f"{number}.parquet")
    files = str(tmp_path / "*.parquet")
    rules: dict[str, Any] = {"transform": _SQL, "where": "id >= 10"}
    report = _load(catalog, spark, files, "db.t", transform_engine="duckdb", **rules)
    assert report.direct
    assert (report.rows_read, report.rows_inserted) == (4 * _ROWS, 2 * _ROWS - 5)
    assert report.peak_bytes_held <= report.memory_limit_bytes
    _load(catalog, None, files, "db.local", engine="local", **rules)
    assert _rows(catalog, "db.t") == _rows(catalog, "db.local")
    wrong = "SELECT CAST(country AS INT) AS n FROM source"
    with pytest.raises(ice.InvalidArgumentError, match="In Spark's tasks, DuckDB runs it"):
        _load(catalog, spark, files, "db.n", transform=wrong, transform_engine="duckdb")
    assert not catalog.table_exists("db.n")


def test_duckdb_runs_row_local_sql_in_tasks_of_a_merge(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, 50), tmp_path / "a.parquet")
    merge: dict[str, Any] = {"mode": "merge", "keys": "id", "transform": _SQL}
    for name, engine in (("db.duckdb", "duckdb"), ("db.spark", "spark")):
        for inserted in (25, 0):
            options = {**merge, "transform_engine": engine}
            report = _load(catalog, spark, tmp_path / "a.parquet", name, **options)
            assert (report.rows_inserted, report.rows_read) == (inserted, 50)
            assert report.direct == (engine == "duckdb")
    assert _rows(catalog, "db.duckdb") == _rows(catalog, "db.spark")


@pytest.mark.usefixtures("no_frames")
def test_a_value_that_does_not_fit_its_type_is_named_by_the_task(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, 5, price=[0.5, 1.0, 2.125, 3.0, 4.0]), tmp_path / "a.parquet")
    select = [{"name": "cost", "from": "price", "type": "decimal(10,2)"}]
    with pytest.raises(ice.InvalidDataError, match=r"'cost' has the value '2\.125'") as error:
        _load(catalog, spark, tmp_path / "a.parquet", "db.t", select=select)
    assert error.value.column == "cost"
    assert not catalog.table_exists("db.t")
    with pytest.raises(ice.InvalidArgumentError, match="did you mean 'price'"):
        _load(catalog, spark, tmp_path / "a.parquet", "db.t", select=["prize"])


def test_numbers_are_loaded_into_a_text_column_as_from_a_frame(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    for name, source in (("db.file", tmp_path / "a.parquet"), ("db.frame", frame)):
        catalog.create_table(name, pa.schema([("id", pa.string())]))
        _load(catalog, spark, source, name)
        assert _rows(catalog, name) == [{"id": "1"}, {"id": "2"}]
    catalog.create_table("db.number", pa.schema([("id", pa.date32())]))
    with pytest.raises(ice.SchemaMismatchError, match="id"):
        _load(catalog, spark, tmp_path / "a.parquet", "db.number")


def test_rules_are_the_same_where_rows_pass_through_spark(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, 50), tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path / "a.parquet"))
    for name, source in (("db.file", tmp_path / "a.parquet"), ("db.frame", frame)):
        _load(catalog, spark, source, name, mode="merge", keys="key", **_RULES)
        report = _load(catalog, spark, source, name, mode="merge", keys="key", **_RULES)
        assert report.direct == (name == "db.file")
        assert (report.rows_unchanged, report.rows_inserted) == (27, 0)
    assert _rows(catalog, "db.file") == _rows(catalog, "db.frame")
    _load(catalog, spark, tmp_path / "a.parquet", "db.direct", **_RULES)
    assert _rows(catalog, "db.file") == _rows(catalog, "db.direct")
    select = [{"name": "cost", "from": "price", "type": "int"}]
    with pytest.raises(ice.InvalidDataError, match=r"'cost' has the value '0\.5'"):
        _load(catalog, spark, frame, "db.t", select=select)


@pytest.mark.usefixtures("no_frames", "many_tasks")
def test_one_parquet_file_is_read_by_several_tasks(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, _ROWS), tmp_path / "a.parquet", row_group_size=500)
    report = _load(catalog, spark, tmp_path / "a.parquet", "db.t")
    assert report.files_added == 4, "two tasks for each core"
    assert _rows(catalog, "db.t") == orders(0, _ROWS).to_pylist()
    again = _load(catalog, spark, tmp_path / "a.parquet", "db.t", mode="replace", load_id="b")
    assert again.direct
    assert again.files_removed == 4
    assert _rows(catalog, "db.t") == orders(0, _ROWS).to_pylist()


@pytest.mark.usefixtures("no_frames", "many_tasks")
def test_tasks_write_the_partitions_of_the_rows_that_they_read(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    for number in range(4):
        folder = tmp_path / "in" / f"part={number}"
        folder.mkdir(parents=True)
        pq.write_table(orders(number * _ROWS, _ROWS), folder / "a.parquet")
    report = _load(catalog, spark, tmp_path / "in", "db.t", partition_by=["part", "country"])
    assert report.direct
    assert report.files_added == 8, "one for each partition"
    rows = _rows(catalog, "db.t")
    assert [row["part"] for row in rows] == [n // _ROWS for n in range(4 * _ROWS)]
    assert [row["id"] for row in rows] == list(range(4 * _ROWS))


@pytest.mark.usefixtures("many_tasks")
def test_scattered_partitions_are_still_distributed_by_spark(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    for number in range(4):
        pq.write_table(orders(number * _ROWS, _ROWS), tmp_path / f"{number}.parquet")
    files = str(tmp_path / "*.parquet")
    plan = ice.load(
        files, "db.t", catalog=catalog, spark=spark, partition_by="country", dry_run=True, state=""
    )
    assert isinstance(plan, ice.LoadPlan)
    assert plan.direct is False
    report = _load(catalog, spark, files, "db.t", partition_by="country")
    assert not report.direct
    assert report.files_added == 2, "one for each partition"
    assert _rows(catalog, "db.t") == orders(0, 4 * _ROWS).to_pylist()


@_MODES
@pytest.mark.usefixtures("no_frames", "many_tasks")
def test_bad_records_are_skipped_by_tasks_and_stored_as_before(
    spark: Any, catalog: Catalog, tmp_path: Path, mode: dict[str, Any]
) -> None:
    lines = [f"{number},{number}.5" for number in range(_ROWS)]
    lines[7], lines[2000] = "seven,1", "2000"
    (tmp_path / "a.csv").write_text("id,price\n" + "\n".join(lines) + "\n")
    options: dict[str, Any] = {"schema": {"id": "long", "price": "double"}, **mode}
    with pytest.raises(ice.SourceError, match=r"a\.csv', line 9, .*'seven"):
        _load(catalog, spark, tmp_path / "a.csv", "db.t", **options)
    assert not catalog.table_exists("db.t")
    report = _load(catalog, spark, tmp_path / "a.csv", "db.t", bad_records="quarantine", **options)
    assert report.direct
    assert (report.rows_read, report.rows_inserted) == (_ROWS, _ROWS - 2)
    bad = catalog.load_table("db.t_quarantine").scan().to_arrow()
    assert sorted(bad["line"].to_pylist()) == [9, 2002]


@pytest.mark.usefixtures("no_frames")
def test_types_that_spark_lacks_are_loaded_and_keep_their_values(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    ids = [uuid.UUID(int=number) for number in range(3)]
    rows = pa.table(
        {
            "id": [0, 1, 2],
            "at": pa.array([dt.time(1), None, dt.time(23, 59, 59, 1)], pa.time64("us")),
            "key": pa.array([each.bytes for each in ids], pa.uuid()),
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    assert _load(catalog, spark, tmp_path / "a.parquet", "db.t").direct
    types = [str(field.field_type) for field in catalog.load_table("db.t").schema().fields]
    assert types == ["long", "time", "uuid"]
    assert [row["at"] for row in _rows(catalog, "db.t")] == rows["at"].to_pylist()
    # Earlier versions created text columns for UUIDs.
    text = pa.schema([("id", pa.int64()), ("at", pa.time64("us")), ("key", pa.string())])
    catalog.create_table("db.text", text)
    assert _load(catalog, spark, tmp_path / "a.parquet", "db.text").direct
    assert [row["key"] for row in _rows(catalog, "db.text")] == [str(each) for each in ids]


@pytest.mark.usefixtures("no_frames")
def test_sources_without_rows_create_and_replace(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_table("db.source", orders(0, 1).schema)
    report = _load(catalog, spark, "table:db.source", "db.t")
    assert (report.direct, report.created, report.rows_inserted) == (True, True, 0)
    ice.append(catalog.load_table("db.t"), orders(0, 5))
    report = _load(catalog, spark, "table:db.source", "db.t", mode="replace")
    assert (report.rows_read, report.rows_deleted) == (0, 5)
    assert _rows(catalog, "db.t") == []


@pytest.mark.slow
@pytest.mark.usefixtures("no_frames")
def test_files_of_a_speculative_attempt_are_not_committed_and_are_found_as_orphans(
    spark: Any, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = PlannedWrite.commit
    left: list[str] = []

    def commit_beside_a_loser(self: PlannedWrite, *arguments: Any) -> ice.WriteReport:
        loser = write_stream(
            self.target.for_task(0, 999_999),
            orders(0, 10),
            budget=MemoryBudget(10**8),
            schema_mode="freeze",
            shared=True,
        )
        left.extend(Path(file.path).name for file in loser.files)
        return commit(self, *arguments)

    monkeypatch.setattr(PlannedWrite, "commit", commit_beside_a_loser)
    catalog.create_table("db.t", orders(0, 1).schema)
    pq.write_table(orders(0, _ROWS), tmp_path / "a.parquet")
    _load(catalog, spark, tmp_path / "a.parquet", "db.t")
    assert _rows(catalog, "db.t") == orders(0, _ROWS).to_pylist()
    found = ice.orphans(catalog.load_table("db.t"), older_than=0)
    assert [Path(file.path).name for file in found.files] == left
    assert len(left) == 1


def test_files_that_a_transform_reads_are_as_large_as_they_are_for_a_join(
    spark: Any, tmp_path: Path
) -> None:
    """Spark broadcasts what it takes for small."""
    path = tmp_path / "a.csv"
    pacsv.write_csv(orders(0, _ROWS), path)
    files = find_files(SourceSpec.parse(path), {})
    each = LoadInput(SourceSpec.parse(path), files=files, stored=columns_of(files, KnownTypes()))
    frame = FileFrames(spark, "db.t", passes_bad=False).frame(each).frame
    size = int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
    assert size >= path.stat().st_size
    assert frame.count() == _ROWS
