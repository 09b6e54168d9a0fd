"""Loads on Spark, in a fresh process with one warm session: `benchmarks.spark` starts it.

The last line of stdout is the result, as JSON. CPU seconds are those of this process, the JVM and
the Python workers.
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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from pyiceberg.table import Table

import icestream.spark as ice_spark
from benchmarks.data import columns as col
from benchmarks.data.tables import NAMESPACE, open_catalog
from benchmarks.measure.cpu import cpu_seconds
from benchmarks.measure.java import java_catalog, java_settings

_ROW_BYTES = {"parquet": 49, "csv": 95, "json": 150}
_FILES = 8
_GROUP_ROWS = 500_000
_DAYS = 4
_DAY_MICROS = 86_400_000_000
_FIRST_MICROS = 1_700_006_400_000_000


@dataclass(frozen=True, slots=True)
class SparkLoadCase:
    """A load to measure.

    Attributes:
        root: Folder of the benchmark.
        name: Name of the case.
        repeat: Number of runs of each engine. The engines alternate.
        memory: Memory limit of a task.
        total_bytes: Approximate size of the files.
        baseline: A commit; None measures the current source.
    """

    root: str
    name: str
    repeat: int
    memory: str
    total_bytes: int
    baseline: str | None = None


def rows(seed: int, count: int) -> pa.Table:
    """Orders of four days, in random order."""
    rng = np.random.default_rng([700, seed])
    moments = _FIRST_MICROS + rng.integers(0, _DAYS * _DAY_MICROS, count)
    return pa.table(
        {
            "id": col.sequence(seed * 1_000_000_000, count),
            "amount": col.amounts(rng, count),
            "price": col.doubles(rng, count),
            "weight": col.doubles(rng, count),
            "account": col.integers(rng, count, 2**62),
            "customer": col.words(rng, count),
            "created_at": pa.array(moments, pa.timestamp("us")),
        }
    )


def files_of(root: Path, format: str, total_bytes: int) -> list[Path]:
    """Write the files of a format that do not exist yet, and return their paths."""
    folder = root / "loads" / f"{format}-{total_bytes}"
    folder.mkdir(parents=True, exist_ok=True)
    count = max(1, total_bytes // _ROW_BYTES[format] // _FILES)
    paths = []
    for number in range(_FILES):
        path = folder / f"{number}.{format}"
        paths.append(path)
        if path.exists():
            continue
        table, unfinished = rows(number, count), path.with_suffix(".unfinished")
        if format == "parquet":
            pq.write_table(table, unfinished, compression="zstd", row_group_size=_GROUP_ROWS)
        elif format == "csv":
            pacsv.write_csv(table, unfinished)
        else:
            _write_json(table, unfinished)
        unfinished.rename(path)
    return paths


def _write_json(table: pa.Table, path: Path) -> None:
    with path.open("w") as lines:
        for batch in table.to_batches(max_chunksize=50_000):
            for row in batch.to_pylist():
                row["created_at"] = row["created_at"].isoformat(sep=" ")
                lines.write(json.dumps(row) + "\n")


def changes_of(root: Path, total_bytes: int) -> list[Path]:
    """Write files that change 4% of the rows of the Parquet files, and add some.

    The keys are in two of the eight files.
    """
    folder = root / "loads" / f"changes-{total_bytes}"
    folder.mkdir(parents=True, exist_ok=True)
    count = max(1, total_bytes // _ROW_BYTES["parquet"] // _FILES)
    paths = []
    for number in range(2):
        path = folder / f"{number}.parquet"
        paths.append(path)
        if path.exists():
            continue
        table, unfinished = rows(3 + number, count), path.with_suffix(".unfinished")
        changed = table.filter(np.arange(count) % 20 < 3)
        new = rows(900 + number, count // 64)
        table = pa.concat_tables([changed, new])
        amount = table.schema.get_field_index("amount")
        table = table.set_column(amount, "amount", pc.add(table["amount"], 1))
        pq.write_table(table, unfinished, compression="zstd", row_group_size=_GROUP_ROWS)
        unfinished.rename(path)
    return paths


_FORMATS = {
    "load-parquet": "parquet",
    "load-partitioned": "parquet",
    "load-merge": "parquet",
    "load-csv": "csv",
    "load-json": "json",
}
CASES = tuple(_FORMATS)


class _Suite:
    """A session, a catalog and the files of a case."""

    def __init__(self, case: SparkLoadCase, config: dict[str, str] | None) -> None:
        self._case = case
        self._root = Path(case.root)
        self._format = _FORMATS[case.name]
        self._paths = files_of(self._root, self._format, case.total_bytes)
        self.spark = ice_spark.session("local[2]", memory=case.memory, config=config)
        self._has_java = config is not None
        self._catalog = open_catalog(self._root) if config is None else java_catalog(config)
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        self._name = f"{NAMESPACE}.{case.name.replace('-', '_')}"
        self._merged: Table | None = None
        if case.name == "load-merge":
            self.prepare()
            self._load()
            self._merged = self._catalog.load_table(self._name)
            self._paths = changes_of(self._root, case.total_bytes)

    def engines(self) -> dict[str, Callable[[], Any]]:
        """What to measure. Others come first, where they can do the same."""
        engines: dict[str, Callable[[], Any]] = {}
        if self._has_java:
            engines["iceberg-java"] = self._by_java
        if self._case.name == "load-parquet" and self._case.baseline is None:
            engines["spark-parquet"] = self._native
        return {**engines, "icestream": self._load}

    def prepare(self) -> None:
        """Drop what the last run wrote."""
        if self._merged is not None:
            snapshot = self._merged.metadata.current_snapshot_id
            table = self._catalog.load_table(self._name)
            if table.metadata.current_snapshot_id != snapshot:
                table.manage_snapshots().rollback_to_snapshot(snapshot).commit()
            return
        if self._catalog.table_exists(self._name):
            self._catalog.purge_table(self._name)
        shutil.rmtree(self._out, ignore_errors=True)

    @property
    def _out(self) -> Path:
        return self._root / "loads" / "out.parquet"

    def _load(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        if self._case.name == "load-partitioned":
            options["partition_by"] = ["bucket(16, id)", "day(created_at)"]
        if self._merged is not None:
            options |= {"mode": "merge", "keys": "id"}
        if self._format != "parquet":
            options["schema"] = {"created_at": "timestamp"}  # text would be read as nanoseconds
        report = ice.load(
            [str(path) for path in self._paths],
            self._name,
            catalog=self._catalog,
            spark=self.spark,
            state="",
            memory=self._case.memory,
            **options,
        )
        assert isinstance(report, ice.LoadReport)
        return {
            "rows": report.rows_inserted + report.rows_updated,
            "files": report.files_added,
            "bytes": report.bytes_written,
            "direct": getattr(report, "direct", False),
            "growth_bytes": (report.peak_worker_bytes or 0) - (report.worker_base_bytes or 0),
        }

    def _by_java(self) -> dict[str, Any]:
        """Insert the rows of the files with Iceberg's Java runtime."""
        table = f"java.{self._name}"
        parts = ""
        if self._case.name == "load-partitioned":
            parts = "PARTITIONED BY (bucket(16, id), days(created_at))"
        frame = self._source()
        columns = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
        self.spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg {parts}")
        frame.createOrReplaceTempView("source")
        self.spark.sql(f"INSERT INTO {table} SELECT * FROM source")
        files = self._catalog.load_table(self._name).inspect.files()
        return {"rows": sum(files["record_count"].to_pylist()), "files": len(files)}

    def _source(self) -> Any:
        paths = [str(path) for path in self._paths]
        if self._format == "parquet":
            return self.spark.read.parquet(*paths)
        columns = (
            "id bigint, amount decimal(12,2), price double, weight double, account bigint, "
            "customer string, created_at timestamp_ntz"
        )
        reader = self.spark.read.schema(columns)
        if self._format == "csv":
            return reader.option("header", True).csv(paths)
        return reader.option("timestampNTZFormat", "yyyy-MM-dd HH:mm:ss[.SSSSSS]").json(paths)

    def _native(self) -> None:
        frame = self.spark.read.parquet(*map(str, self._paths))
        frame.write.option("compression", "zstd").parquet(str(self._out))


def measure(case: SparkLoadCase) -> list[dict[str, Any]]:
    """Run the engines, alternating: once to warm up, then `repeat` times."""
    with java_settings(case.root) as config:
        return _measured(case, config)


def _measured(case: SparkLoadCase, config: dict[str, str] | None) -> list[dict[str, Any]]:
    suite = _Suite(case, config)
    engines = suite.engines()
    figures: dict[str, dict[str, Any]] = {
        name: {"engine": name, "seconds": [], "cpu_seconds": [], "facts": None} for name in engines
    }
    for turn in range(case.repeat + 1):
        for name, run in engines.items():
            suite.prepare()
            began, cpu = time.perf_counter(), cpu_seconds()
            facts = run()
            if turn:
                figures[name]["seconds"].append(time.perf_counter() - began)
                figures[name]["cpu_seconds"].append(cpu_seconds() - cpu)
            figures[name]["growth_bytes"] = (facts or {}).pop("growth_bytes", 0)
            figures[name]["facts"] = facts
    suite.prepare()
    suite.spark.stop()
    return list(figures.values())


def main() -> None:
    """Run the case, and print its figures."""
    case = SparkLoadCase(**json.loads(sys.argv[-1]))
    print(json.dumps({"figures": measure(case)}))


if __name__ == "__main__":
    main()
