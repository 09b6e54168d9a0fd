"""A worker's memory stays near the limit of its task: in a Spark whose workers are fresh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.spark_process import SparkProcess

MB = 10**6
LIMIT = 48 * MB
# What Arrow's allocator keeps beside the bytes in use, and the batch on its way to the JVM.
ALLOWANCE = 64 * MB


@pytest.fixture(scope="module")
def process() -> Iterator[SparkProcess]:
    """A Spark of its own."""
    with SparkProcess(master="local[2]", memory="64MB") as running:
        yield running


@pytest.mark.slow
def test_a_worker_that_reads_grows_by_the_limit_and_little_more(
    process: SparkProcess, tmp_path: Path
) -> None:
    count = 1_500_000
    rows, growth = process.call(_read_wide_rows, tmp_path, count)
    assert rows == 4 * count
    assert 5 * MB < growth <= LIMIT + ALLOWANCE


def _read_wide_rows(spark: Any, folder: Path, count: int) -> tuple[int, int]:
    """How many rows were read, and by how much a worker grew."""
    from pyspark.sql import functions as sf

    import icestream.spark as ice_spark
    from benchmarks.measure.worker_peaks import WorkerMeter
    from tests.support.tables import commit_files, make_catalog, write_parquet_file

    catalog = make_catalog(folder)
    table = catalog.create_table("db.wide", pa.schema([(f"x{i}", pa.float64()) for i in range(8)]))
    random = np.random.default_rng(0)
    rows = pa.table({name: random.random(count) for name in table.schema().column_names})
    # One row group of 96 MB to a file: a reader that takes them whole could not pass.
    files = [write_parquet_file(table, rows, compression="none") for _ in range(4)]
    small = catalog.create_table("db.small", table.schema())
    commit_files(small, [write_parquet_file(small, rows.slice(i, 10)) for i in range(4)])
    commit_files(table, files)
    del rows

    read = ice_spark.read
    meter = WorkerMeter(lambda: read(spark, small).agg(sf.sum("x0")).collect())
    meter.start()
    frame = read(spark, table, memory=LIMIT)
    [total] = frame.agg(sf.count("*"), sf.sum("x7")).collect()
    growth = meter.growth_bytes()
    catalog.close()
    return total[0], growth


@pytest.mark.slow
def test_a_worker_that_writes_wide_rows_grows_by_the_limit_and_little_more(
    process: SparkProcess, tmp_path: Path
) -> None:
    rows, growth = process.call(_write_wide_rows, tmp_path, 100_000)
    assert rows == 100_000
    assert 5 * MB < growth <= LIMIT + ALLOWANCE


def _write_wide_rows(spark: Any, folder: Path, count: int) -> tuple[int, int]:
    """By the number of rows alone, Spark would send batches of 240 MB; by default of 64 MB."""
    from pyspark.sql import functions as sf

    import icestream.spark as ice_spark
    from benchmarks.measure.worker_peaks import WorkerMeter
    from icestream.spark.setup.settings import BATCH_BYTES_SETTING
    from tests.support.tables import make_catalog

    assert int(spark.conf.get(BATCH_BYTES_SETTING)) == 4 * MB
    catalog = make_catalog(folder)

    def append(rows: int) -> Any:
        columns = (sf.rand(number).alias(f"x{number}") for number in range(300))
        frame = spark.range(0, rows, 1, 1).select("id", *columns)
        return ice_spark.append(frame, "db.wide", catalog=catalog, create=True, memory=LIMIT)

    meter = WorkerMeter(lambda: append(10))
    meter.start()
    report = append(count)
    growth = meter.growth_bytes()
    catalog.close()
    assert 0 < report.worker_peak_bytes - report.worker_base_bytes <= LIMIT + ALLOWANCE
    return report.rows_inserted, growth


@pytest.mark.slow
def test_the_process_that_commits_for_the_format_rewrites_files_inside_its_limit(
    process: SparkProcess, tmp_path: Path
) -> None:
    """It has no session, so it can't start tasks: it reads and writes the files itself."""
    rows, has_session, growth = process.call(_overwrite_by_format, tmp_path, 1_500_000)
    assert rows == 2 * 750_000 + 10
    assert not has_session
    assert 5 * MB < growth <= LIMIT + ALLOWANCE


def _overwrite_by_format(spark: Any, folder: Path, count: int) -> tuple[int, bool, int]:
    """The rows at the end, whether the commit has a session, and by how much its process grew."""
    from icestream.spark.data_source import IcestreamSource
    from icestream.spark.format.sink import IcestreamWriter
    from tests.support.spark_stream import catalog_options
    from tests.support.tables import commit_files, make_catalog, write_parquet_file

    class Writer(IcestreamWriter):
        def commit(self, messages: Any) -> None:
            from pyspark import SparkContext
            from pyspark.sql import SparkSession

            from icestream.memory.machine import resident_bytes

            has_session = SparkSession.getActiveSession() or SparkContext._active_spark_context
            Path("/proc/self/clear_refs").write_text("5")  # sets VmHWM to the current size
            before = resident_bytes("self", "VmRSS")
            super().commit(messages)
            growth = resident_bytes("self", "VmHWM") - before
            (folder / "measured").write_text(f"{has_session is not None:d} {growth}")

    class Source(IcestreamSource):
        def writer(self, schema: Any, overwrite: bool) -> Writer:
            return Writer({**self.options, "memory": str(LIMIT)}, schema, overwrite)

    catalog = make_catalog(folder)
    table = catalog.create_table("db.wide", pa.schema([(f"x{i}", pa.float64()) for i in range(8)]))
    random = np.random.default_rng(0)
    rows = pa.table({name: random.random(count) for name in table.schema().column_names})
    rows = rows.set_column(0, "x0", [np.arange(count) % 2 * 1.0])
    commit_files(table, [write_parquet_file(table, rows, compression="none") for _ in range(2)])
    frame = spark.createDataFrame(rows.slice(0, 10))
    del rows
    spark.dataSource.register(Source)
    options = catalog_options(catalog, overwrite_where="x0 > 0.5")
    try:
        frame.write.format("icestream").mode("overwrite").options(**options).save("db.wide")
    finally:
        spark.dataSource.register(IcestreamSource)
    has_session, growth = (folder / "measured").read_text().split()
    total = table.refresh().scan().count()
    catalog.close()
    return total, has_session == "1", int(growth)
