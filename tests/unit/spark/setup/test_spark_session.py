"""Sessions: what is refused before Spark starts, and settings that the caller keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

import icestream.spark as ice_spark
from icestream.errors import InvalidArgumentError
from icestream.spark.setup.spark_session import logging_settings


def test_a_master_and_a_remote_are_refused_together() -> None:
    with pytest.raises(InvalidArgumentError, match="give one of them"):
        ice_spark.session("local", remote="sc://localhost")


def test_a_memory_that_is_no_size_is_refused_before_spark_starts() -> None:
    with pytest.raises(InvalidArgumentError, match="'lots' is not a size"):
        ice_spark.session(memory="lots")


def test_the_callers_logging_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "log4j2" in logging_settings({})["spark.driver.extraJavaOptions"]
    assert logging_settings({"spark.log.level": "INFO"}) == {}
    assert logging_settings({"spark.driver.extraJavaOptions": "-Dlog4j2.level=info"}) == {}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert logging_settings({}) == {"spark.log.level": "ERROR"}
