"""A session with settings that suit Arrow, and what is said when it can't be had."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import icestream.spark as ice_spark
from icestream.errors import InvalidArgumentError, MissingExtraError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.setup.spark_session import logging_settings
from tests.support.process import run_in_fresh_process


def _in_a_fresh_process(source: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    ).stdout


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


def test_a_master_and_a_remote_are_refused_together() -> None:
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        ice_spark.session("local", remote="sc://localhost")


def test_a_memory_that_is_no_size_is_refused_before_spark_starts() -> None:
    with pytest.raises(InvalidArgumentError, match="'lots' is not a size"):
        ice_spark.session(memory="lots")


def test_every_public_name_is_a_function_and_no_module_has_it() -> None:
    modules = {module.name for module in pkgutil.iter_modules(ice_spark.__path__)}
    assert modules.isdisjoint(ice_spark.__all__)
    assert all(callable(getattr(ice_spark, name)) for name in ice_spark.__all__)
    assert dir(ice_spark) == ice_spark.__all__


def test_what_hands_out_a_plan_imports_neither_arrow_nor_pyiceberg() -> None:
    """Spark starts a process for it, each time."""
    source = """
import json, sys
import pyspark.sql.datasource
before = set(sys.modules)
import icestream.spark.data_source
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    added = json.loads(_in_a_fresh_process(source))
    assert "icestream.spark.data_source" in added
    assert not [name for name in added if name.partition(".")[0] in ("pyarrow", "pyiceberg")]


def test_the_defaults_of_a_session_are_those_of_the_library() -> None:
    assert SessionDefaults().memory_bytes == parse_bytes(DEFAULT_MEMORY)


@pytest.mark.parametrize(
    ("version", "is_enough"), [("3.5.6", False), ("4.0.1", False), ("4.1.0.dev0", True)]
)
def test_a_pyspark_that_is_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, is_enough: bool
) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    if is_enough:
        assert pyspark_module("pyspark.sql").__name__ == "pyspark.sql"
        return
    with pytest.raises(MissingExtraError, match=f"4.1 or newer, and {version} is installed"):
        ice_spark.register(object())


def test_importing_icestream_spark_does_not_import_pyspark() -> None:
    source = "import sys, json, icestream.spark; print(json.dumps(sorted(sys.modules)))"
    assert "pyspark" not in json.loads(_in_a_fresh_process(source))


@pytest.mark.parametrize("call", ["session()", "session(remote='sc://x')", "read(None, 'db.t')"])
def test_without_pyspark_the_error_names_the_extra(call: str) -> None:
    source = f"""
import sys
sys.modules["pyspark"] = None
import icestream, icestream.spark as ice_spark
try:
    ice_spark.{call}
except icestream.MissingExtraError as error:
    print(error)
"""
    assert _in_a_fresh_process(source).strip() == (
        "icestream.spark needs PySpark, which is not installed: pip install 'icestream[spark]'"
    )


def test_without_the_packages_of_spark_connect_the_error_names_them() -> None:
    source = """
def main():
    import sys
    sys.modules["grpc"] = None
    import icestream, icestream.spark as ice_spark
    try:
        ice_spark.session(remote="sc://localhost:1")
    except icestream.MissingExtraError as error:
        return str(error)
"""
    message = run_in_fresh_process(source).result
    assert "pip install 'icestream[spark]' 'pyspark[connect]'" in message


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


def test_the_callers_logging_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "log4j2" in logging_settings({})["spark.driver.extraJavaOptions"]
    assert logging_settings({"spark.log.level": "INFO"}) == {}
    assert logging_settings({"spark.driver.extraJavaOptions": "-Dlog4j2.level=info"}) == {}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert logging_settings({}) == {"spark.log.level": "ERROR"}
