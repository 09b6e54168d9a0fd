"""Iceberg's Java runtime beside icestream, in one Spark session with one REST catalog."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyiceberg.catalog import Catalog, load_catalog

from benchmarks.measure.baseline import REPOSITORY

JAVA_PYTHON = REPOSITORY / ".venv-interop" / "bin" / "python"
"""The Python of the environment whose PySpark the runtime is made for. `make java` creates it."""

_URI = "spark.sql.catalog.java.uri"


@contextmanager
def java_settings(root: str) -> Iterator[dict[str, str] | None]:
    """Run the server of a new catalog, and return settings of a session that knows it as `java`.

    None in an environment without the runtime.
    """
    if not pyspark.__version__.startswith("4.1.") or not (REPOSITORY / ".interop").exists():
        yield None
        return
    from tests.interop.java_spark import session_settings
    from tests.interop.rest_server import RestServer

    folder = Path(root, "spark", "rest").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = RestServer(folder)
    try:
        yield session_settings(server.uri, folder)
    finally:
        server.stop()


def java_catalog(config: dict[str, str]) -> Catalog:
    """The catalog of such a session, for icestream."""
    return load_catalog("rest", type="rest", uri=config[_URI])
