"""Writes whose tasks fail, in a Spark of their own that tries a task twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

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
    from icestream.spark.source import IcestreamSource
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


def _case(
    spark: Any,
    catalog: Any,
    folder: Path,
    name: str,
    write: Callable[[Any, str], None],
    times: str,
) -> dict[str, Any]:
    table = catalog.create_table(f"db.{name}", ORDERS, properties=_SMALL_FILES)
    data = Path(table.location().removeprefix("file://"), "data")
    tried = folder / f"{name}-tried"
    frame = orders(spark, ROWS, tasks=2).mapInArrow(_failing(data, tried, times), ORDERS_DDL)
    error: BaseException | None = None
    try:
        write(frame, f"db.{name}")
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
        if context.partitionId() != 1 or (times == "once" and context.attemptNumber() > 0):
            return
        end = time.monotonic() + _WAIT_SECONDS
        while not any(attempt in path.name for path in data.glob("*.parquet")):
            if time.monotonic() > end:
                raise RuntimeError("no file of this attempt came")
            time.sleep(0.02)
        with tried.open("a") as lines:
            lines.write(f"{attempt}\n")
        raise RuntimeError("the second task fails late")

    return fail
