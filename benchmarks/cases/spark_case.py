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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform
from pyspark.sql import functions as pyspark_functions

import icestream.spark as ice_spark
from benchmarks.data.tables import NAMESPACE, load_table, local_path, open_catalog
from benchmarks.datasets import table_name
from benchmarks.measure.cpu import cpu_seconds
from benchmarks.measure.java import java_catalog, java_settings
from benchmarks.measure.worker_peaks import WorkerMeter

MERGED_ROWS = 300_000
_JAVA = f"java.{NAMESPACE}"


@dataclass(frozen=True, slots=True)
class SparkCase:
    """The cases to measure.

    Attributes:
        root: Folder with the tables of the benchmark.
        names: Names of the cases.
        repeat: Number of runs of each engine. The engines alternate.
        memory: Memory limit of a task.
        scale: Share of the rows that the tables have.
        baseline: A commit; None measures the current source.
    """

    root: str
    names: list[str]
    repeat: int
    memory: str
    scale: float = 1.0
    baseline: str | None = None


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
        self.a = load_table(self.root, table_name("a", case.scale))
        self.has_java = config is not None
        if config is not None:  # a catalog that both engines know
            self.catalog = java_catalog(config)
            self.catalog.create_namespace_if_not_exists(NAMESPACE)
            self.catalog.register_table((NAMESPACE, "a"), self.a.metadata_location)
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

    def by_java(self, run: Callable[[Any], Any]) -> Engines:
        """Iceberg's runtime as an engine that works on its frame of set a, if it is installed."""
        if not self.has_java:
            return {}
        return {"iceberg-java": lambda: run(self.spark.table(f"{_JAVA}.a"))}

    def new_table(self, name: str, **options: Any) -> Table:
        """Create an empty table with the columns of set a."""
        identifier = (NAMESPACE, name)
        if self.catalog.table_exists(identifier):
            self.catalog.purge_table(identifier)
        return self.catalog.create_table(identifier, self.a.schema(), **options)

    def measure(self, engines: Engines) -> list[dict[str, Any]]:
        """Run the engines, alternating: once to warm up, then `repeat` times."""
        runs: dict[str, list[float]] = {name: [] for name in engines}
        cpu: dict[str, list[float]] = {name: [] for name in engines}
        growth = dict.fromkeys(engines, 0)
        facts: dict[str, Any] = dict.fromkeys(engines)
        for turn in range(self.case.repeat + 1):
            for name, engine in engines.items():
                run, prepare = engine if isinstance(engine, tuple) else (engine, lambda: None)
                prepare()
                self.meter.start()
                began, cpu_began = time.perf_counter(), cpu_seconds()
                facts[name] = run()
                if turn:
                    runs[name].append(time.perf_counter() - began)
                    cpu[name].append(cpu_seconds() - cpu_began)
                growth[name] = max(growth[name], self.meter.growth_bytes())
        return [
            {
                "engine": name,
                "seconds": runs[name],
                "cpu_seconds": cpu[name],
                "growth_bytes": growth[name],
                "facts": facts[name],
            }
            for name in engines
        ]


def scan(suite: Suite) -> Engines:
    """Read all rows and columns."""
    return {
        **suite.by_java(suite.noop),
        "spark-parquet": lambda: suite.noop(suite.parquet()),
        "icestream": lambda: suite.noop(ice_spark.read(suite.spark, suite.a)),
    }


def aggregate(suite: Suite) -> Engines:
    """Sum two of five columns."""
    query = ["sum(amount)", "max(created_at)"]
    read = ice_spark.read
    return {
        **suite.by_java(lambda frame: frame.selectExpr(*query).collect()[0][0]),
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
        **suite.by_java(lambda frame: suite.noop(frame.where(where))),
        "full scan": lambda: suite.noop(ice_spark.read(suite.spark, suite.a)),
        "filtered": some,
    }


def append(suite: Suite) -> Engines:
    """Append rows that Spark has computed from Parquet files."""
    folder = suite.root / "spark" / "out.parquet"
    frame = suite.parquet().withColumn("amount", pyspark_functions.col("amount") * 2)

    def native() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        frame.write.option("compression", "zstd").parquet(str(folder))

    return {
        **_appended_by_java(suite, frame),
        "spark-parquet": native,
        "icestream": lambda: _append(suite, "spark_append", frame),
    }


def partitioned(suite: Suite) -> Engines:
    """Append to bucket(16) and four days, compared with no partitions. Files have 8 MB."""
    days = "timestamp_ntz '2024-01-01 00:00:00' + make_dt_interval(int(id % 4))"
    frame = suite.parquet().selectExpr("* except (created_at)", f"{days} as created_at")
    properties = {"write.target-file-size-bytes": str(8 << 20)}
    schema = suite.a.schema()
    spec = PartitionSpec(
        PartitionField(schema.find_field("id").field_id, 1000, BucketTransform(16), "bucket"),
        PartitionField(schema.find_field("created_at").field_id, 1001, DayTransform(), "day"),
    )
    into = {"partition_spec": spec, "properties": properties}
    return {
        **_appended_by_java(suite, frame, **into),
        "unpartitioned": lambda: _append(suite, "spark_append", frame, properties=properties),
        "partitioned": lambda: _append(suite, "spark_partitioned", frame, **into),
    }


def _appended_by_java(suite: Suite, frame: Any, **options: Any) -> Engines:
    if not suite.has_java:
        return {}
    name = "java_append"

    def run() -> dict[str, Any]:
        table = suite.new_table(name, **options)
        frame.writeTo(f"{_JAVA}.{name}").append()
        summary = table.refresh().current_snapshot().summary.additional_properties
        return {
            "files": int(summary["added-data-files"]),
            "bytes": int(summary["added-files-size"]),
        }

    return {"iceberg-java": run}


def one_row_group(suite: Suite) -> Engines:
    """Read set b, which has one row group of 2.3 GB, in one task."""
    table = load_table(suite.root, table_name("b", suite.case.scale))
    return {"icestream": lambda: suite.noop(ice_spark.read(suite.spark, table))}


def merged(suite: Suite) -> Engines:
    """Merge 330,000 rows into 16 million, or into 8 million with `--scale 0.5`."""
    engines: Engines = {}
    if suite.has_java:
        theirs = _Merged(suite, "merge_java")
        engines["iceberg-java"] = (theirs.by_java, theirs.roll_back)
        mor = _Merged(suite, "merge_java_mor", {"write.merge.mode": "merge-on-read"})
        engines["iceberg-java-mor"] = (mor.by_java, mor.roll_back)
    ours = _Merged(suite, "merge_ours")
    engines["icestream"] = (lambda: ours.by_us("copy-on-write"), ours.roll_back)
    engines["icestream-mor"] = (lambda: ours.by_us("merge-on-read"), ours.roll_back)
    return engines


class _Merged:
    """A table with the rows of set a, which is restored after each merge."""

    def __init__(self, suite: Suite, name: str, properties: dict[str, str] | None = None) -> None:
        self._suite = suite
        self._name = name
        known = {"format-version": "2", **(properties or {})}
        self._table = suite.new_table(name, properties=known)
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
            f"MERGE INTO {_JAVA}.{self._name} t USING changes s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        summary = self._table.refresh().current_snapshot().summary.additional_properties
        return {"files_removed": int(summary.get("deleted-data-files", 0))}

    def _changes(self) -> Any:
        """Return rows with keys of two files of the table, and some new rows."""
        suite, scale = self._suite, self._suite.case.scale
        rows = round(MERGED_ROWS * min(1.0, 2 * scale))
        frame = suite.parquet()
        share = "id % 10 < 3" if scale == 1 else "id % 10 < 6"
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
    with java_settings(case.root) as config:
        suite = Suite(case, config)
        figures = {name: suite.measure(CASES[name](suite)) for name in case.names}
        suite.spark.stop()
    print(json.dumps({"figures": figures, "pyspark": pyspark.__version__}))


if __name__ == "__main__":
    main()
