"""What credentials leave behind: nothing in plans, event logs and messages."""

from __future__ import annotations

import base64
import pickle
import re
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from icestream.errors import CommitError
from icestream.spark.format.sink import IcestreamWriter
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.streaming.stream_sink import IcestreamStreamWriter
from tests.support.process import run_in_fresh_process
from tests.support.spark_orders import ORDERS, ORDERS_DDL, order_ids
from tests.support.spark_stream import append_orders, catalog_options

SECRET = "hush-4711-hush"
SECRET_PROPERTIES = ("token", "credential", "s3.secret-access-key", "s3.access-key-id", "extra")
# SQLAlchemy refuses it, and says all of it.
BAD_URI = f"sqlite://host/db?password={SECRET}"
SIMPLE_ERRORS = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"

# A session of its own: its event log is a file only of this test.
_READS = f"""
def main():
    from pathlib import Path
    import pyarrow as pa
    import icestream as ice, icestream.spark as ice_spark
    from tests.support.tables import make_catalog

    folder = Path({{folder!r}})
    catalog = make_catalog(folder)
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    ice.append(table, pa.table({{{{"id": [1, 2, 3]}}}}))
    table = catalog.load_table("db.t")
    table.io.properties["s3.secret-access-key"] = {SECRET!r}
    spark = ice_spark.session("local[1]", config={{{{
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }}}})
    shown = []
    reader = spark.read.format("icestream").option("catalog", "tests")
    for name, value in catalog.properties.items():
        reader = reader.option("catalog." + name, value)
    for name in {SECRET_PROPERTIES!r}:
        reader = reader.option("catalog." + name, {SECRET!r})
    for frame in (ice_spark.read(spark, table), reader.load("db.t")):
        frame.createOrReplaceTempView("v")
        assert spark.sql("select count(*) from v where id > 1").collect() == [(2,)]
        frame.write.format("noop").mode("append").save()
        shown.append(frame._jdf.queryExecution().toString())
        shown.append(spark.sql("explain extended select * from v").collect()[0][0])
        shown.append(spark.sql("explain formatted select * from v").collect()[0][0])
    spark.stop()
    return shown
"""


def _encoded(text: str) -> list[bytes]:
    """Compressed texts in base64 that are in the text, decompressed."""
    found = []
    for run in re.findall(r"eJ[A-Za-z0-9+/=]{40,}", text):
        try:
            found.append(zlib.decompressobj().decompress(base64.b64decode(run + "===")))
        except (ValueError, zlib.error):
            continue
    return found


def _text_below(folder: Path) -> str:
    """What all files below a folder hold, but for checksums."""
    files = [path for path in folder.rglob("*") if path.is_file() and "crc" not in path.suffix]
    return "\n".join(path.read_text() for path in files)


@contextmanager
def _errors_of_python(spark: Any, causes: str) -> Iterator[None]:
    """Have Spark show errors of Python with their causes, or without, as it does by default."""
    before = spark.conf.get(SIMPLE_ERRORS)
    spark.conf.set(SIMPLE_ERRORS, "true" if causes == "left out" else "false")
    try:
        yield
    finally:
        spark.conf.set(SIMPLE_ERRORS, before)


@contextmanager
def _event_log(spark: Any, folder: Path) -> Iterator[None]:
    """Have the running Spark write an event log meanwhile, as one with an event log does."""
    folder.mkdir()
    context, jvm = spark.sparkContext._jsc.sc(), spark._jvm
    conf = context.conf().clone().set("spark.eventLog.compress", "false")
    no_attempt = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    place = jvm.java.net.URI(folder.as_uri())
    log = jvm.org.apache.spark.scheduler.EventLoggingListener("app", no_attempt, place, conf)
    log.start()
    context.addSparkListener(log)
    try:
        yield
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(log)
        log.stop()


def _secret_options(catalog: Catalog, **options: str) -> dict[str, str]:
    secrets = {f"catalog.{name}": SECRET for name in SECRET_PROPERTIES}
    return {**catalog_options(catalog, **options), **secrets}


@pytest.mark.slow
def test_neither_plans_nor_the_event_log_show_credentials_or_the_plan(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    shown = run_in_fresh_process(_READS.format(folder=str(tmp_path))).result
    text = "\n".join([*shown, _text_below(tmp_path / "events")])
    assert "SparkListenerSQLExecutionStart" in text
    assert "icestream" in text
    assert "catalog.credential" in text, "Spark shows options: else this test shows nothing"
    assert SECRET not in text
    assert _encoded(text) == []


@pytest.mark.slow
def test_neither_writes_nor_streams_show_credentials(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    append_orders(catalog.create_table("db.t", ORDERS), 0, 3)
    copy = catalog.create_table("db.copy", ORDERS)
    given, events, checkpoint = _secret_options(catalog), tmp_path / "events", tmp_path / "place"
    with _event_log(spark, events):
        frame = spark.read.format("icestream").options(**given).load("db.t")
        frame.write.format("icestream").options(**given).mode("append").save("db.copy")
        stream = spark.readStream.format("icestream").options(**given).load("db.t")
        writer = stream.writeStream.format("icestream").options(**given)
        writer = writer.option("stream-id", "copy").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start("db.copy")
        query.awaitTermination()
    assert order_ids(copy) == [0, 0, 1, 1, 2, 2]
    of_stream = stream._jdf.queryExecution().toString()
    of_query = query._jsq.explainInternal(True)
    log, kept = _text_below(events), _text_below(checkpoint)
    assert "catalog.credential" in of_stream, "Spark shows options: else this test shows nothing"
    assert "AppendData icestream" in log
    assert "StreamingQueryListener$QueryProgressEvent" in log
    assert "WriteToMicroBatchDataSource icestream" in of_query
    assert '"snapshot"' in kept, "offsets are kept, and they are ours"
    for text in (log, of_stream, of_query, kept, str(query.recentProgress), str(query.status)):
        assert SECRET not in text
        assert _encoded(text) == []


@pytest.mark.slow
@pytest.mark.parametrize("causes", ["left out", "shown"])
def test_neither_errors_of_writes_nor_of_streams_show_credentials(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, causes: str
) -> None:
    catalog.create_table("db.t", ORDERS)
    frame, given = spark.createDataFrame([(1, "r", 1.0)], ORDERS_DDL), _secret_options(catalog)
    bad = {**given, "catalog.uri": BAD_URI}
    stream = spark.readStream.format("icestream").options(**given).load("db.t")

    def write_stream() -> None:
        place = {"stream-id": "copy", "checkpointLocation": str(tmp_path / "place")}
        writer = stream.writeStream.format("icestream").options(**bad, **place)
        writer.trigger(availableNow=True).start("db.t").awaitTermination()

    with _event_log(spark, tmp_path / "events"), _errors_of_python(spark, causes):
        refused = [
            _shown(lambda: _append(frame, bad)),
            _shown(lambda: spark.readStream.format("icestream").options(**bad).load("db.t")),
            _shown(write_stream),
        ]
    for text in refused:
        assert "icestream.errors.CatalogError: catalog 'tests' could not be opened" in text
        assert "direct cause" not in text
        assert "During handling" not in text
        assert SECRET not in text
    log = _text_below(tmp_path / "events")
    assert "catalog 'tests' could not be opened" in log
    assert SECRET not in log


@pytest.mark.slow
def test_a_failing_task_of_a_write_shows_no_credentials(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    catalog.create_table("db.t", ORDERS)
    frame = spark.createDataFrame([(1, "r", 1.0)], ORDERS_DDL)
    failing = frame.withColumn("price", sf.raise_error(sf.lit("bad row")).cast("double"))
    given = _secret_options(catalog)
    with _event_log(spark, tmp_path / "events"), _errors_of_python(spark, "shown"):
        by_spark = _shown(lambda: _append(failing, given))
        by_us = _shown(lambda: _append(frame, {**given, "memory": "1kB"}))
    assert "bad row" in by_spark
    assert "MemoryBudgetError" in by_us
    log = _text_below(tmp_path / "events")
    assert "bad row" in log
    assert "MemoryBudgetError" in log
    for text in (by_spark, by_us, log):
        assert SECRET not in text
        assert _encoded(text) == []


def _append(frame: Any, options: dict[str, str]) -> None:
    frame.write.format("icestream").options(**options).mode("append").save("db.t")


def _shown(call: Callable[[], Any]) -> str:
    """The error of a call, as Spark and Python show it."""
    with pytest.raises(PySparkException) as caught:
        call()
    return "".join(traceback.format_exception(caught.value))


def test_a_refused_commit_does_not_show_why_the_catalog_has_refused_it(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_table("db.t", ORDERS)
    frame = spark.createDataFrame([(1, "r", 1.0)], ORDERS_DDL)
    given, batches = {**_secret_options(catalog), "path": "db.t"}, frame.toArrow().to_batches()
    batch = IcestreamWriter(given, frame.schema, overwrite=False)
    named = {**given, "stream-id": "copy"}
    stream = IcestreamStreamWriter(named, frame.schema, False, SessionDefaults())
    answer, of_stream = batch.write(iter(batches)), stream.write(iter(batches))

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no access") from ValueError(f"with {SECRET}")

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    for commit in (lambda: batch.commit([answer]), lambda: stream.commit([of_stream], 0)):
        with pytest.raises(CommitError, match=r"refused the commit to db\.t: OSError") as caught:
            commit()
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_writers_take_no_secret_of_the_catalog_to_tasks(spark: Any, catalog: SqlCatalog) -> None:
    catalog.create_table("db.t", ORDERS)
    schema = spark.createDataFrame([], ORDERS_DDL).schema
    secrets = {f"catalog.{name}": SECRET for name in SECRET_PROPERTIES if "s3." not in name}
    for path, create in (("db.t", "false"), ("db.new", "true")):
        given = {**catalog_options(catalog), **secrets, "path": path, "create": create}
        batch = IcestreamWriter(given, schema, overwrite=False)
        named = {**given, "stream-id": "copy"}
        stream = IcestreamStreamWriter(named, schema, False, SessionDefaults())
        for_tasks, for_commit = pickle.dumps(batch), pickle.dumps(batch)
        assert SECRET.encode() not in for_tasks
        assert SECRET.encode() in for_commit, "which runs on the driver, and opens the catalog"
        assert SECRET.encode() not in pickle.dumps(stream)


def test_an_encoded_plan_would_be_seen() -> None:
    plan = SECRET.encode() + bytes(range(200))
    assert _encoded(f"plan={base64.b64encode(zlib.compress(plan)).decode()}]") == [plan]


@pytest.mark.slow
def test_an_error_of_the_format_shows_neither_a_secret_nor_a_cause(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    reader = (
        spark.read.format("icestream")
        .option("catalog", "far")
        .option("catalog.uri", f"postgresql+nodriver://me:{SECRET}@localhost:1/db")
        .option("catalog.s3.secret-access-key", SECRET)
    )
    with pytest.raises(PySparkException) as caught:
        reader.load("db.t")
    assert "icestream.errors.CatalogError: catalog 'far' could not be opened" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "direct cause" not in str(caught.value)
