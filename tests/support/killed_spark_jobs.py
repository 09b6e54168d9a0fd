"""Every job on Spark that changes a table, with the rows that it leaves, on executors that may die.

`python -m tests.support.killed_spark_jobs FOLDER JOB STEP` runs a job in a driver of its own, which
dies at the step: in the middle of tasks, or just before or after a call that decides. It says
`done` if it did not die.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

import icestream as ice
from tests.support.catalogs import make_catalog
from tests.support.killing_tasks import FOLDER, PATH, Kill, name_driver, plan_kills
from tests.support.process import REPOSITORY
from tests.support.spark_orders import ORDERS

Rows = Mapping[int, float]
STEPS = ("in tasks", "before the commit", "after the commit")
_TARGET = "write.target-file-size-bytes"
_ROWS = 32_000
_REGIONS = 4
_ORPHANS = 1100
_RANDOM = random.Random(7)
BEFORE: Rows = {number: _RANDOM.random() for number in range(_ROWS)}
_CHANGED = range(_ROWS - 4000, _ROWS + 4000)
_CHANGES: Rows = {number: 10 + _RANDOM.random() for number in _CHANGED}
_NEW: Rows = {number: 10 + _RANDOM.random() for number in range(_ROWS, _ROWS + 16_000)}
_FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLUSTER, LOCAL = "local-cluster[2,1,512]", "local[2,8]"
SESSION: dict[str, Any] = {
    "memory": "64MB",
    "config": {
        "spark.executorEnv.PYTHONPATH": f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": _FAST_JAVA,
        "spark.executor.extraJavaOptions": _FAST_JAVA,
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "8",
        "spark.deploy.maxExecutorRetries": "-1",
    },
}


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        run: What runs, given the session, the table, its catalog and a folder of source files.
        after: The rows that it leaves.
        event: What its tasks do that kills wait for.
        commits: Whether it makes a snapshot.
        new_spec: Whether the table has a newer partition spec than its files.
    """

    run: Callable[[Any, Table, SqlCatalog, Path], object]
    after: Rows
    event: Any = "output"
    commits: bool = True
    new_spec: bool = False


def prepare(folder: Path, name: str) -> SqlCatalog:
    """A table `db.t` for a job, and source files in `changes` and `new`."""
    catalog = open_catalog(folder)
    job = JOBS[name]
    properties = {_TARGET: str(32 << 10), "write.parquet.row-group-size-bytes": str(32 << 10)}
    table = catalog.create_table("db.t", ORDERS, properties=properties)
    ice.append(table, _arrow(BEFORE))
    if name == "compact":
        table.transaction().set_properties({_TARGET: str(96 << 10)}).commit_transaction()
    if job.new_spec:
        with table.update_spec() as update:
            update.add_field("region", IdentityTransform(), "region")
    for kind, rows in (("changes", _CHANGES), ("new", _NEW)):
        (folder / kind).mkdir()
        for number, each in enumerate(range(0, len(rows), 1000)):
            part = dict(list(rows.items())[each : each + 1000])
            pq.write_table(_arrow(part), folder / kind / f"{number}.parquet", row_group_size=250)
    if job.event != "output":
        _leave_orphans(table)
    return catalog


def open_catalog(folder: Path) -> SqlCatalog:
    """The catalog, whose tables have things killed."""
    return make_catalog(folder, **{"py-io-impl": PATH, FOLDER: str(folder / "kills")})


def rows_of(table: Table) -> Rows:
    """The rows of a table, as it is now."""
    read = table.refresh().scan().to_arrow()
    rows = dict(zip(read["id"].to_pylist(), read["price"].to_pylist(), strict=True))
    assert len(rows) == read.num_rows, "a key is there twice"
    return rows


def run_job(spark: Any, name: str, catalog: SqlCatalog, folder: Path) -> None:
    """Run a job with tasks of about the same size, however few rows there are."""
    for module, constant, value in (
        ("icestream.pipeline.engines.direct_source", "LEAST_BYTES_PER_TASK", 1000),
        ("icestream.spark.writing.keyed_frame", "_FEW_BYTES", -1),
        ("icestream.spark.writing.merge_job", "_FEW_ROWS", -1),
    ):
        setattr(import_module(module), constant, value)
    JOBS[name].run(spark, catalog.load_table("db.t"), catalog, folder)


def cluster_variables() -> dict[str, str]:
    """What a driver needs in its environment to start executors, each a process of its own."""
    from icestream.spark.setup.installed import pyspark_module

    home = Path(pyspark_module().__file__).parent
    core = next((home / "jars").glob("spark-core_*.jar")).name
    version = core.removeprefix("spark-core_").partition("-")[0]
    return {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": version}


def _arrow(rows: Rows) -> pa.Table:
    regions = [f"r{number % _REGIONS}" for number in rows]
    columns = {"id": list(rows), "region": regions, "price": list(rows.values())}
    return pa.table(columns, pa.schema([("id", pa.int64()), ("region", "str"), ("price", "f8")]))


def _leave_orphans(table: Table) -> None:
    data = Path(table.location().removeprefix("file://"), "data")
    for number in range(_ORPHANS):
        folder = data / f"part={number % 8}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.parquet").write_bytes(b"PAR1 left")


def _load(sources: str, mode: Any, **options: Any) -> Callable[..., object]:
    def run(spark: Any, table: Table, catalog: SqlCatalog, folder: Path) -> None:
        if mode == "merge":
            options["keys"] = "id"
        path = folder / sources
        report = ice.load(
            path, "db.t", mode=mode, catalog=catalog, spark=spark, state="", **options
        )
        assert isinstance(report, ice.LoadReport)
        assert report.direct == (mode != "merge")

    return run


def _verb(name: str, *arguments: Any, **options: Any) -> Callable[..., object]:
    def run(spark: Any, table: Table, catalog: SqlCatalog, folder: Path) -> object:
        verb = getattr(import_module("icestream.spark"), name)
        return verb(spark, table, *arguments, **options)

    return run


def _overwrite(**options: Any) -> Callable[..., object]:
    def run(spark: Any, table: Table, catalog: SqlCatalog, folder: Path) -> object:
        import icestream.spark as ice_spark

        frame = spark.read.parquet(str(folder / "new"))
        if "partitions" in options:
            frame = frame.where("region = 'r1'")
        return ice_spark.overwrite(frame, table, **options)

    return run


def _sql(statement: str) -> Callable[..., object]:
    def run(spark: Any, table: Table, catalog: SqlCatalog, folder: Path) -> object:
        import icestream.spark as ice_spark

        for view in ("changes", "new"):
            spark.read.parquet(str(folder / view)).createOrReplaceTempView(view)
        return ice_spark.sql(statement, spark=spark, catalog=catalog)

    return run


def _where(test: Callable[[int, float], bool], rows: Rows = BEFORE) -> dict[int, float]:
    return {number: price for number, price in rows.items() if test(number, price)}


_LOW = {number: price + 1 if price < 0.5 else price for number, price in BEFORE.items()}
_HIGH = _where(lambda _, price: price >= 0.5)
_MERGE = (
    "MERGE INTO db.t USING changes AS c ON t.id = c.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
_DOUBLED = "SELECT id, region, price * 2 AS price FROM source WHERE id % 4 > 0"
_ONE_REGION = _where(lambda number, _: number % _REGIONS == 1, _NEW)
JOBS: dict[str, Job] = {
    "append load": Job(_load("new", "append"), {**BEFORE, **_NEW}),
    "replace load": Job(_load("new", "replace"), _NEW),
    "merge load": Job(_load("changes", "merge"), {**BEFORE, **_CHANGES}),
    "DuckDB load": Job(
        _load("new", "append", transform=_DOUBLED, transform_engine="duckdb"),
        {**BEFORE, **{n: 2 * price for n, price in _NEW.items() if n % 4 > 0}},
    ),
    "delete": Job(_verb("delete", "price < 0.5"), _HIGH),
    "update": Job(_verb("update", {"price": "price + 1"}, "price < 0.5"), _LOW),
    "compact": Job(_verb("compact"), BEFORE),
    "orphans": Job(
        _verb("orphans", older_than=0, delete=True, only_catalog=True),
        BEFORE,
        event="remove",
        commits=False,
    ),
    "overwrite where": Job(_overwrite(where="price < 0.5"), {**_HIGH, **_NEW}),
    "overwrite dynamic": Job(
        _overwrite(partitions="dynamic"),
        {**_where(lambda number, _: number % _REGIONS != 1), **_ONE_REGION},
        new_spec=True,
    ),
    "SQL INSERT": Job(_sql("INSERT INTO db.t SELECT * FROM new"), {**BEFORE, **_NEW}),
    "SQL DELETE": Job(_sql("DELETE FROM db.t WHERE price < 0.5"), _HIGH),
    "SQL UPDATE": Job(_sql("UPDATE db.t SET price = price + 1 WHERE price < 0.5"), _LOW),
    "SQL MERGE": Job(_sql(_MERGE), {**BEFORE, **_CHANGES}),
}


def _kill_at(step: str, folder: Path, job: Job) -> None:
    if step == "in tasks":
        plan_kills(folder, [Kill("driver", job.event, count=3)])
        return
    home, name = (SqlCatalog, "commit_table")
    if not job.commits:
        home, name = import_module("icestream.spark.tasks.storage_tasks").SparkStorage, "delete"
    real: Callable[..., Any] = getattr(home, name)

    def killed(*arguments: Any, **options: Any) -> Any:
        if step.startswith("after"):
            real(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(home, name, killed)


def main(folder: Path, name: str, step: str) -> None:
    import icestream.spark as ice_spark

    os.environ.update(cluster_variables())
    # At the commit no task runs: executors of their own would only take time.
    spark = ice_spark.session(CLUSTER if step == "in tasks" else LOCAL, **SESSION)
    catalog = open_catalog(folder)
    name_driver(folder / "kills")
    _kill_at(step, folder / "kills", JOBS[name])
    run_job(spark, name, catalog, folder)
    print("done", flush=True)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
