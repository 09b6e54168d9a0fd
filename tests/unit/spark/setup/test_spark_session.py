"""Sessions: what is refused before Spark starts, and settings that the caller keeps."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

import icestream.spark as ice_spark
from icestream.errors import InvalidArgumentError
from icestream.spark.setup import spark_session
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


class _Builder:
    """Starts a session as PySpark does: it installs its own handler of Ctrl-C, and a child."""

    def __init__(self, *, interrupted: bool = False) -> None:
        self.interrupted = interrupted
        self.child: subprocess.Popen[bytes] | None = None

    def getOrCreate(self) -> _Builder:  # noqa: N802
        signal.signal(signal.SIGINT, lambda *_: None)
        if self.interrupted:
            self.child = subprocess.Popen(["sleep", "600"])
            raise KeyboardInterrupt
        return self


def test_an_application_keeps_its_handler_of_ctrl_c() -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGINT, own)
    try:
        spark_session._build(_Builder(), {})
        assert signal.getsignal(signal.SIGINT) is own
        signal.signal(signal.SIGINT, signal.default_int_handler)
        spark_session._build(_Builder(), {})
        assert signal.getsignal(signal.SIGINT) not in (own, signal.default_int_handler)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_spark_starts_leaves_no_jvm_behind() -> None:
    before, builder = signal.getsignal(signal.SIGINT), _Builder(interrupted=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            spark_session._build(builder, {})
    finally:
        signal.signal(signal.SIGINT, before)
    assert builder.child is not None
    assert builder.child.wait(timeout=60) == -signal.SIGKILL
