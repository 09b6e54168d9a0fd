"""Jars that sources name, for databases and formats that Spark does not have by itself."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from icestream.errors import InvalidArgumentError
from icestream.pipeline.source_spec import SourceSpec
from icestream.spark.installed import is_classic

JAR = "jar"
_SETTING = "spark.jars"
_DRIVERS = "META-INF/services/java.sql.Driver"


def named_jars(sources: Iterable[SourceSpec]) -> tuple[str, ...]:
    """The jars of all sources, each once. An option has one, or several with commas.

    Raises:
        InvalidArgumentError: If one is not there: Spark would go on without it.
    """
    told = [part for source in sources for part in str(source.options.get(JAR, "")).split(",")]
    jars = tuple(dict.fromkeys(part.strip() for part in told if part.strip()))
    for jar in jars:
        path = _local(jar)
        if path is not None and not path.is_file():
            raise InvalidArgumentError(f"the jar {jar!r} is not there: check option 'jar'")
    return jars


def add_jars(spark: Any, source: SourceSpec) -> None:
    """Give a session the jars of a source, unless it was started with them.

    Raises:
        InvalidArgumentError: If one is not there.
    """
    has = {_name(jar) for jar in (spark.conf.get(_SETTING, None) or "").split(",")}
    for jar in named_jars([source]):
        if _name(jar) in has:
            continue
        if is_classic(spark):
            _show_driver(spark, jar)
            spark.sql(f"ADD JAR '{jar}'")
        else:
            spark.addArtifacts(jar)


def _show_driver(spark: Any, jar: str) -> None:
    """Let all of the driver's threads see a local jar.

    `ADD JAR` is for tasks and for the session. Spark looks elsewhere when a task fails with an
    error that the jar defines, and would say that the reason is unknown.
    """
    path = _local(jar)
    java = spark.sparkContext._jvm.java
    loader = java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and path is not None:
        if loader.getClass().getSimpleName() == "MutableURLClassLoader":
            loader.addURL(java.net.URI(path.resolve().as_uri()).toURL())
            return
        loader = loader.getParent()


def driver_class(jars: Iterable[str]) -> str | None:
    """The JDBC driver that a jar says it has; None if none does, or it is not on this machine.

    Java's own list of drivers does not know those of jars that Spark was given.
    """
    for jar in jars:
        path = _local(jar)
        if path is None or not zipfile.is_zipfile(path):
            continue
        with zipfile.ZipFile(path) as files:
            if _DRIVERS not in files.namelist():
                continue
            lines = files.read(_DRIVERS).decode().splitlines()
        names = [line.partition("#")[0].strip() for line in lines]
        if found := next(filter(None, names), None):
            return found
    return None


def _local(jar: str) -> Path | None:
    if "://" not in jar and not jar.startswith("file:"):
        return Path(jar)
    parts = urlsplit(jar)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _name(jar: str) -> str:
    return jar.strip().rpartition("/")[2]
