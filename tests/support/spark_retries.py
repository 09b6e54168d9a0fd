"""Writes whose tasks fail, in a Spark of their own that tries a task twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.memory.budget import MemoryBudget
from icestream.spark.tasks.direct_write import DirectWrite
from tests.support.spark_orders import ORDERS, ORDERS_DDL, order_ids, orders, stored

ROWS = 40_000
_WAIT_SECONDS = 60
# Files are full after a few batches, so that a task has some when it fails.
_SMALL_FILES = {
    "write.target-file-size-bytes": str(32 << 10),
    "write.parquet.row-group-size-bytes": str(32 << 10),
}


def failing_writes(folder: str) -> dict[str, dict[str, Any]]:
    """What became of a table after each write, by the name of the case.

    Cases are `helper` and `format`, each with a task that fails `once` or `always`.
    """
    import icestream.spark as ice_spark
    from icestream.spark.data_source import IcestreamSource
    from tests.support.catalogs import make_catalog

    spark = ice_spark.session("local[2,2]", memory="64MB")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2000")
    spark.dataSource.register(IcestreamSource)
    catalog = make_catalog(Path(folder))
    options = {f"catalog.{name}": value for name, value in catalog.properties.items()}

    def by_helper(frame: Any, name: str) -> None:
        ice_spark.append(frame, name, catalog=catalog)

    def by_format(frame: Any, name: str) -> None:
        writer = frame.write.format("icestream").mode("append").option("catalog", "tests")
        writer.options(**options).save(name)

    try:
        return {
            f"{how} {times}": _case(spark, catalog, Path(folder), f"{how}_{times}", write, times)
            for how, write in (("helper", by_helper), ("format", by_format))
            for times in ("once", "always")
        }
    finally:
        spark.stop()
        catalog.close()


def failing_loads(folder: str) -> dict[str, dict[str, Any]]:
    """What became of a table after each load whose tasks read the files, by the name of the case.

    A task fails `once` or `always`. The worker of the case `load kill` is killed once.
    """
    import icestream as ice
    import icestream.spark as ice_spark
    from tests.support.catalogs import make_catalog

    spark = ice_spark.session("local[2,2]", memory="64MB")
    catalog = make_catalog(Path(folder))

    def by_load(name: str, source: Path, failing: Callable[..., Any]) -> None:
        small = mock.patch("icestream.pipeline.engines.direct_source.LEAST_BYTES_PER_TASK", 1000)
        fails = mock.patch("icestream.spark.writing.direct_rows.DirectWrite", failing)
        with small, fails:
            report = ice.load(source, name, catalog=catalog, spark=spark, state="")
        assert isinstance(report, ice.LoadReport)
        assert report.direct

    try:
        return {
            f"load {times}": _load_case(catalog, Path(folder), f"load_{times}", by_load, times)
            for times in ("once", "always", "kill")
        }
    finally:
        spark.stop()
        catalog.close()


def _case(
    spark: Any,
    catalog: Any,
    folder: Path,
    name: str,
    write: Callable[[Any, str], None],
    times: str,
) -> dict[str, Any]:
    table = catalog.create_table(f"db.{name}", ORDERS, properties=_SMALL_FILES)
    data, tried = _places(table, folder, name)
    frame = orders(spark, ROWS, tasks=2).mapInArrow(_failing(data, tried, times), ORDERS_DDL)
    return _outcome(table, data, tried, lambda: write(frame, f"db.{name}"))


def _load_case(
    catalog: Any, folder: Path, name: str, load: Callable[..., None], times: str
) -> dict[str, Any]:
    table = catalog.create_table(f"db.{name}", ORDERS, properties=_SMALL_FILES)
    data, tried = _places(table, folder, name)
    source = folder / f"{name}-source"
    source.mkdir()
    for number in range(2):
        ids = range(number * ROWS // 2, (number + 1) * ROWS // 2)
        columns = {
            "id": pa.array(ids, pa.int64()),
            "region": [f"r{n % 4}" for n in ids],
            "price": [n / 8 for n in ids],
        }
        pq.write_table(pa.table(columns), source / f"{number}.parquet", row_group_size=2500)

    def failing(*arguments: Any) -> FailingDirectWrite:
        return FailingDirectWrite(*arguments, data, tried, times)

    return _outcome(table, data, tried, lambda: load(f"db.{name}", source, failing))


def _places(table: Any, folder: Path, name: str) -> tuple[Path, Path]:
    return Path(table.location().removeprefix("file://"), "data"), folder / f"{name}-tried"


def _outcome(table: Any, data: Path, tried: Path, write: Callable[[], None]) -> dict[str, Any]:
    error: BaseException | None = None
    try:
        write()
    except Exception as raised:
        error = raised
    ids = order_ids(table)
    named = {task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files()}
    files = {Path(path).name for path in stored(data) if path.endswith(".parquet")}
    markers = [path for path in stored(data.parent) if "in-flight" in path]
    return {
        "error": type(error).__name__ if error else None,
        "message": str(error) if error else "",
        "cause": type(error.__cause__).__name__ if error and error.__cause__ else None,
        "exact": ids == list(range(ROWS)),
        "rows": len(ids),
        "snapshots": len(table.metadata.snapshots),
        "failures": len(tried.read_text().splitlines()),
        "files not in the table": sorted(files - named),
        "markers": markers,
    }


def _failing(data: Path, tried: Path, times: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function whose second task fails, late, and after files of it are in storage."""

    def fail(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = f"-{context.taskAttemptId()}-"
        yield from batches
        if context.partitionId() != 1 or (times != "always" and context.attemptNumber() > 0):
            return
        end = time.monotonic() + _WAIT_SECONDS
        while not any(attempt in path.name for path in data.glob("*.parquet")):
            if time.monotonic() > end:
                raise RuntimeError("no file of this attempt came")
            time.sleep(0.02)
        with tried.open("a") as lines:
            lines.write(f"{attempt}\n")
        if times == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("the second task fails late")

    return fail


@dataclass(frozen=True)
class FailingDirectWrite(DirectWrite):
    """The work of a task that reads and writes, and fails as `_failing` does."""

    data: Path = Path()
    tried: Path = Path()
    times: str = ""

    def _rows(
        self, batches: Iterable[pa.RecordBatch], budget: MemoryBudget
    ) -> Iterator[pa.RecordBatch]:
        yield from _failing(self.data, self.tried, self.times)(super()._rows(batches, budget))
