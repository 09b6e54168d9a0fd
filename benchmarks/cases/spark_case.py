"""Spark cases in a fresh process with one warm session: `python -m benchmarks.cases.spark_case`.

`benchmarks.spark` starts it. The last line of stdout is the result, as JSON.
"""

from __future__ import annotations

import json
import sys

import icestream as ice  # import first, so that it chooses Arrow's allocator

# isort: split
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

import icestream.spark as ice_spark
from benchmarks.data.tables import NAMESPACE, load_table, local_path, open_catalog
from benchmarks.measure.worker_peaks import WorkerMeter

MERGED_ROWS = 300_000
_REST_URI = "spark.sql.catalog.java.uri"


@dataclass(frozen=True, slots=True)
class SparkCase:
    """The cases to measure.

    Attributes:
        root: Folder with the tables of the benchmark.
        names: Names of the cases.
        repeat: Number of runs of each engine. The engines alternate.
        memory: Memory limit of a task.
        suffix: Suffix of the table names, for tables that are scaled down.
    """

    root: str
    names: list[str]
    repeat: int
    memory: str
    suffix: str = ""


Run = Callable[[], Any]
# For each engine: the function to measure, and a function that runs before it.
Engines = dict[str, Run | tuple[Run, Run]]


class Suite:
    """A session and the tables."""

    def __init__(self, case: SparkCase, config: dict[str, str] | None = None) -> None:
        self.case = case
        self.root = Path(case.root)
        self.spark = ice_spark.session("local[2]", memory=case.memory, config=config)
        self.catalog: Catalog = open_catalog(self.root)
        if (uri := (config or {}).get(_REST_URI)) is not None:  # Both engines know this one.
            self.catalog = load_catalog("rest", type="rest", uri=uri)
            self.catalog.create_namespace_if_not_exists(NAMESPACE)
        self.a = load_table(self.root, f"a{case.suffix}")
        self.meter = WorkerMeter(lambda: self.noop(self.small()))

    def small(self) -> Any:
        """Run a few rows through all modules that workers import."""
        return ice_spark.read(self.spark, self.a, where="id < 100")

    def noop(self, frame: Any) -> None:
        """Run a frame, and drop its rows."""
        frame.write.format("noop").mode("overwrite").save()

    def parquet(self) -> Any:
        """Read the files of set a with Spark alone."""
        paths = [str(local_path(task.file.file_path)) for task in self.a.scan().plan_files()]
        return self.spark.read.parquet(*paths)

    def new_table(self, name: str, **options: Any) -> Table:
        """Create an empty table with the columns of set a."""
        identifier = (NAMESPACE, name)
        if self.catalog.table_exists(identifier):
            self.catalog.purge_table(identifier)
        return self.catalog.create_table(identifier, self.a.schema(), **options)

    def measure(self, engines: Engines) -> list[dict[str, Any]]:
        """Run the engines, alternating: once to warm up, then `repeat` times."""
        runs: dict[str, list[float]] = {name: [] for name in engines}
        growth = dict.fromkeys(engines, 0)
        facts: dict[str, Any] = dict.fromkeys(engines)
        for turn in range(self.case.repeat + 1):
            for name, engine in engines.items():
                run, prepare = engine if isinstance(engine, tuple) else (engine, lambda: None)
                prepare()
                self.meter.start()
                began = time.perf_counter()
                facts[name] = run()
                if turn:
                    runs[name].append(time.perf_counter() - began)
                growth[name] = max(growth[name], self.meter.growth_bytes())
        return [
            {
                "engine": name,
                "seconds": runs[name],
                "growth_bytes": growth[name],
                "facts": facts[name],
            }
            for name in engines
        ]


def scan(suite: Suite) -> Engines:
    """Read all rows and columns."""
    return {
        "spark-parquet": lambda: suite.noop(suite.parquet()),
        "icestream": lambda: suite.noop(ice_spark.read(suite.spark, suite.a)),
    }


def aggregate(suite: Suite) -> Engines:
    """Sum two of five columns."""
    query = ["sum(amount)", "max(created_at)"]
    read = ice_spark.read
    return {
        "spark-parquet": lambda: suite.parquet().selectExpr(*query).collect()[0][0],
        "icestream": lambda: (
            read(suite.spark, suite.a, columns=["amount", "created_at"])
            .selectExpr(*query)
            .collect()[0][0]
        ),
    }


def filtered(suite: Suite) -> Engines:
    """Read with a filter that selects 2 of 32 files, compared with the whole table."""
    where = "id >= 3000000000 and id < 5000000000"

    def some() -> dict[str, int]:
        suite.noop(ice_spark.read(suite.spark, suite.a, where=where))
        with ice.scan(suite.a, where=where) as planned:
            return {"files": len({split.path for split in planned.splits()})}

    return {
        "full scan": lambda: suite.noop(ice_spark.read(suite.spark, suite.a)),
        "filtered": some,
    }


def append(suite: Suite) -> Engines:
    """Append 16 million rows from Parquet files."""
    folder = suite.root / "spark" / "out.parquet"

    def native() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        suite.parquet().write.option("compression", "zstd").parquet(str(folder))

    return {
        "spark-parquet": native,
        "icestream": lambda: _append(suite, "spark_append", suite.parquet()),
    }


def partitioned(suite: Suite) -> Engines:
    """Append to bucket(16) and four days, compared with no partitions. Files have 8 MB."""
    days = "timestamp_ntz '2024-01-01 00:00:00' + make_dt_interval(int(id % 4))"
    frame = suite.parquet().selectExpr("* except (created_at)", f"{days} as created_at")
    properties = {"write.target-file-size-bytes": str(8 << 20)}

    def into_partitions() -> dict[str, Any]:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import BucketTransform, DayTransform

        schema = suite.a.schema()
        spec = PartitionSpec(
            PartitionField(schema.find_field("id").field_id, 1000, BucketTransform(16), "bucket"),
            PartitionField(schema.find_field("created_at").field_id, 1001, DayTransform(), "day"),
        )
        name = "spark_partitioned"
        return _append(suite, name, frame, partition_spec=spec, properties=properties)

    return {
        "unpartitioned": lambda: _append(suite, "spark_append", frame, properties=properties),
        "partitioned": into_partitions,
    }


def one_row_group(suite: Suite) -> Engines:
    """Read set b, which has one row group of 2.3 GB, in one task."""
    table = load_table(suite.root, f"b{suite.case.suffix}")
    return {"icestream": lambda: suite.noop(ice_spark.read(suite.spark, table))}


def merged(suite: Suite) -> Engines:
    """Merge 300,000 rows into 16 million, compared with Iceberg's Java runtime if installed."""
    engines: Engines = {}
    if suite.spark.conf.get(_REST_URI, None) is not None:
        theirs = _Merged(suite, "merge_java")
        engines["iceberg-java"] = (theirs.by_java, theirs.roll_back)
    ours = _Merged(suite, "merge_ours")
    engines["icestream"] = (lambda: ours.by_us("copy-on-write"), ours.roll_back)
    engines["icestream-mor"] = (lambda: ours.by_us("merge-on-read"), ours.roll_back)
    return engines


class _Merged:
    """A table with the rows of set a, which is restored after each merge."""

    def __init__(self, suite: Suite, name: str) -> None:
        self._suite = suite
        self._name = name
        self._table = suite.new_table(name, properties={"format-version": "2"})
        for task in suite.a.scan().plan_files():
            with ice.read_splits([task], table=suite.a) as rows:
                ice.append(self._table, rows)
        self._made = self._table.refresh().metadata.current_snapshot_id

    def roll_back(self) -> None:
        """Restore the table."""
        self._table.refresh()
        if self._table.metadata.current_snapshot_id != self._made:
            self._table.manage_snapshots().rollback_to_snapshot(self._made).commit()

    def by_us(self, mode: Any) -> dict[str, Any]:
        """Merge with icestream."""
        report = ice_spark.merge(self._changes(), self._table, on="id", write_mode=mode)
        return {
            "updated": report.rows_updated,
            "inserted": report.rows_inserted,
            "files_removed": report.files_removed,
        }

    def by_java(self) -> dict[str, Any]:
        """Merge with Iceberg's Java runtime."""
        spark = self._suite.spark
        self._changes().createOrReplaceTempView("changes")
        spark.sql(
            f"MERGE INTO java.{NAMESPACE}.{self._name} t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        summary = self._table.refresh().current_snapshot().summary.additional_properties
        return {"files_removed": int(summary.get("deleted-data-files", 0))}

    def _changes(self) -> Any:
        """Return rows with keys of two files of the table, and some new rows."""
        suite = self._suite
        rows = MERGED_ROWS // 100 if suite.case.suffix else MERGED_ROWS
        frame = suite.parquet()
        share = "id % 10 < 3" if not suite.case.suffix else "id % 10 < 6"
        changed = frame.where(f"id >= 3000000000 and id < 5000000000 and {share}")
        changed = changed.withColumn("amount", frame.amount + 1)
        new = frame.where(f"id < {rows // 10}").selectExpr(
            "id + 900000000000 as id", "amount", "customer", "active", "created_at"
        )
        return changed.unionByName(new)


def _append(suite: Suite, name: str, frame: Any, **options: Any) -> dict[str, Any]:
    table = suite.new_table(name, **options)
    report = ice_spark.append(frame, table)
    return {"files": report.files_added, "bytes": report.bytes_written}


@contextmanager
def _java(case: SparkCase) -> Iterator[dict[str, str] | None]:
    """Return the settings of Iceberg's Java runtime, for the environment that has it."""
    if case.names != ["merge"] or not pyspark.__version__.startswith("4.1."):
        yield None
        return
    from tests.interop.java_spark import session_settings
    from tests.interop.rest_server import RestServer

    folder = Path(case.root, "spark", "rest").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = RestServer(folder)
    try:
        yield session_settings(server.uri, folder)
    finally:
        server.stop()


CASES: dict[str, Callable[[Suite], Engines]] = {
    "scan": scan,
    "aggregate": aggregate,
    "filter": filtered,
    "append": append,
    "partitioned": partitioned,
    "one-row-group": one_row_group,
    "merge": merged,
}


def main() -> None:
    """Run the cases, and print their figures."""
    case = SparkCase(**json.loads(sys.argv[-1]))
    with _java(case) as config:
        suite = Suite(case, config)
        figures = {name: suite.measure(CASES[name](suite)) for name in case.names}
        suite.spark.stop()
    print(json.dumps({"figures": figures, "pyspark": pyspark.__version__}))


if __name__ == "__main__":
    main()
