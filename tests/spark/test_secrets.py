"""What credentials leave behind: nothing in plans, event logs and messages."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException

from icestream.redaction import redact
from tests.support.process import run_in_fresh_process

SECRET = "hush-4711-hush"

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
    for name in ("token", "credential", "s3.secret-access-key", "s3.access-key-id", "extra"):
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


@pytest.mark.slow
def test_neither_plans_nor_the_event_log_show_credentials_or_the_plan(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    shown = run_in_fresh_process(_READS.format(folder=str(tmp_path))).result
    logs = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    text = "\n".join([*shown, *(path.read_text() for path in logs if "crc" not in path.suffix)])
    assert "SparkListenerSQLExecutionStart" in text
    assert "icestream" in text
    assert "catalog.credential" in text, "Spark shows options: else this test shows nothing"
    assert SECRET not in text
    assert _encoded(text) == []


def test_an_encoded_plan_would_be_seen() -> None:
    plan = SECRET.encode() + bytes(range(200))
    assert _encoded(f"plan={base64.b64encode(zlib.compress(plan)).decode()}]") == [plan]


def test_messages_hide_secret_properties_and_passwords_in_addresses() -> None:
    properties = {"s3.secret-access-key": SECRET, "warehouse": "s3://bucket"}
    message = (
        f"no access to s3://bucket with {SECRET} from postgresql://me:{SECRET[:4]}@host/db"
        "?password=x1"
    )
    shown = redact(message, properties)
    assert "s3://bucket" in shown
    assert SECRET[:4] not in shown
    assert "me" not in shown.partition("postgresql")[2]
    assert "x1" not in shown


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
