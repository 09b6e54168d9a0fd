"""Chooses the engine of a load whose engine is `"auto"`: Spark if it can run here, else local."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from icestream.pipeline.request.load_spec import LoadSpec
from icestream.spark.setup.installed import why_no_spark
from icestream.write.sources.formats import needs_spark


def choose_engine(spec: LoadSpec, spark: Any = None) -> tuple[LoadSpec, str | None]:
    """Choose the engine of a load.

    Args:
        spec: The load.
        spark: The session for loads on Spark, if the caller has one.

    Returns:
        The load with its engine, and why. The reason is None if the load names its engine.
    """
    if spec.engine != "auto":
        return spec, None
    needed = "a session is given" if spark is not None else spark_need(spec)
    if needed is not None:
        return replace(spec, engine="spark"), needed
    missing = why_no_spark()
    if missing is not None:
        return replace(spec, engine="local"), missing
    return replace(spec, engine="spark"), "PySpark is installed"


def engine_text(engine: str, reason: str | None) -> str | None:
    """Say which engine was chosen, and why. None if the load names its engine."""
    where = "in this process" if engine == "local" else "on Spark"
    return None if reason is None else f"{where}, because {reason}"


def spark_need(spec: LoadSpec) -> str | None:
    """Why only Spark can run the load, or which option asks for Spark. None if there is neither."""
    for option in ("master", "remote"):
        if getattr(spec, option) is not None:
            return f"{option} is given"
    if spec.transform_engine == "duckdb":
        return "transform_engine runs SQL in Spark's tasks"
    if callable(spec.transform):
        return "the function of transform takes a DataFrame"
    for source in spec.sources:
        if source.kind in ("spark", "frame") or needs_spark(source.format):
            return f"only Spark can read {source.text}"
    return None
