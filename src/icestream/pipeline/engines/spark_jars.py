"""Adds the jars of sources to Spark, for databases and formats that Spark lacks."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.spark.setup.installed import is_classic

JAR = "jar"
_SETTING = "spark.jars"
_DRIVERS = "META-INF/services/java.sql.Driver"


def named_jars(sources: Iterable[SourceSpec]) -> tuple[str, ...]:
    """The jars of all sources, without duplicates. The option is a comma-separated list.

    Raises:
        InvalidArgumentError: If a jar does not exist. Spark would ignore it.
    """
    parts = [part for source in sources for part in str(source.options.get(JAR, "")).split(",")]
    jars = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for jar in jars:
        path = _local(jar)
        if path is not None and not path.is_file():
            raise InvalidArgumentError(f"the jar {jar!r} does not exist: check option 'jar'")
    return jars


def add_jars(spark: Any, source: SourceSpec) -> None:
    """Add the jars of a source to a session, unless it was started with them.

    Raises:
        InvalidArgumentError: If a jar does not exist.
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
    """Make a local jar visible to all threads of the driver.

    `ADD JAR` adds it only to tasks and to the session. If a task failed with an error class of the
    jar, Spark would not find the class and would report an unknown reason.
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
    """The JDBC driver class that a local jar declares; None if there is none.

    Java's list of drivers does not include jars that were added to Spark.
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
        if name := next(filter(None, names), None):
            return name
    return None


def _local(jar: str) -> Path | None:
    if "://" not in jar and not jar.startswith("file:"):
        return Path(jar)
    parts = urlsplit(jar)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _name(jar: str) -> str:
    return jar.strip().rpartition("/")[2]
