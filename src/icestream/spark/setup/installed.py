"""Imports PySpark when it is needed, or raises an error that says how to install it."""

from __future__ import annotations

from importlib import import_module
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
        version = import_module("pyspark").__version__
        if tuple(map(int, version.split(".")[:2])) < _OLDEST:
            raise MissingExtraError(
                f"icestream.spark needs PySpark {'.'.join(map(str, _OLDEST))} or newer, and "
                f"{version} is installed: pip install 'icestream[spark]'"
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
