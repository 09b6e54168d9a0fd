"""A session with settings that suit Arrow, and what is said when it can't be had."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import icestream.spark as ice_spark
from icestream.errors import InvalidArgumentError


def test_the_session_has_our_settings(spark: Any) -> None:
    settings = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.icestream.memory": "64000000",
    }
    assert {name: spark.conf.get(name) for name in settings} == settings


def test_workers_run_this_python_with_jemalloc(spark: Any) -> None:
    def look(_: Any) -> list[tuple[str, str]]:
        import pyarrow as pa

        return [(sys.executable, pa.default_memory_pool().backend_name)]

    seen = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert seen == [(sys.executable, "jemalloc")]


def test_a_second_call_takes_the_running_session_and_its_memory_counts(spark: Any) -> None:
    try:
        again = ice_spark.session(memory="1MB", config={"spark.sql.session.timeZone": "Asia/Tokyo"})
        assert again is spark
        assert spark.conf.get("spark.icestream.memory") == "1000000"
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        ice_spark.session("local[2]", memory="64MB")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_another_master_than_the_running_one_is_refused(spark: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"running on local\[2\], not on local\[7"):
        ice_spark.session("local[7]")


def test_every_public_name_is_a_function_and_no_module_has_it() -> None:
    modules = {module.name for module in pkgutil.iter_modules(ice_spark.__path__)}
    assert modules.isdisjoint(ice_spark.__all__)
    assert all(callable(getattr(ice_spark, name)) for name in ice_spark.__all__)
    assert dir(ice_spark) == ice_spark.__all__


@pytest.mark.slow
def test_spark_says_nothing_but_what_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS")  # of the tests, which Java mentions
    source = """
import icestream.spark as ice_spark

def fails(batches):
    raise ValueError("of a task")

spark = ice_spark.session("local[1]", config={"spark.driver.extraJavaOptions": "-Dkept=yes"})
assert spark.sparkContext._jvm.System.getProperty("kept") == "yes"
assert spark.range(10).count() == 10
try:
    spark.range(10).mapInArrow(fails, "id long").count()
except Exception as error:
    print("of a task" in str(error))
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")
