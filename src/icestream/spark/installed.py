"""PySpark, or an error that says how to get it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from icestream.errors import MissingExtraError


def pyspark_module(name: str = "pyspark") -> ModuleType:
    """A module of PySpark.

    Raises:
        MissingExtraError: If PySpark is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise MissingExtraError(
            "icestream.spark needs PySpark, which is not installed: pip install 'icestream[spark]'"
        ) from error


def is_classic(spark: Any) -> bool:
    """Whether a session is not one of Spark Connect."""
    return ".connect." not in type(spark).__module__
