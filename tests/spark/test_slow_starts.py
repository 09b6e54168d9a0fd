"""A stream whose Python process starts too slowly for Spark ends, and continues later."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from icestream.spark.data_source import IcestreamSource
from tests.conformance.engines import opened
from tests.support.process import REPOSITORY
from tests.support.spark_orders import ORDERS, order_ids
from tests.support.spark_process import SparkProcess
from tests.support.spark_stream import Copying, append_orders

# A session of its own, and several queries of which one waits.
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

_TRIES = 10  # On a busy machine, other processes start slowly as well.

_FAILURE = "failed to connect back"
_SLOW_PYTHON = """#!/bin/sh
case "$*" in
*streaming_source_runner*) if mv {flag} {flag}.taken 2>/dev/null; then sleep 20; fi ;;
esac
exec {python} "$@"
"""


def test_a_stream_whose_reader_starts_too_slowly_continues_when_it_is_started_again(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table, copy = (catalog.create_table(f"db.{name}", ORDERS) for name in ("orders", "copy"))
    flag, python = tmp_path / "slow", tmp_path / "python"
    python.write_text(_SLOW_PYTHON.format(flag=flag, python=sys.executable))
    python.chmod(0o755)
    path = f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"
    env = {"PYSPARK_PYTHON": str(python), "PYTHONPATH": path}
    with SparkProcess(env=env, master="local[2]", memory="64MB") as process:
        append_orders(table, 0, 10)
        flag.touch()
        assert _FAILURE in process.call(_copy, dict(catalog.properties), str(tmp_path))
        assert not flag.exists()
        assert order_ids(copy) == []
        _copy_all(process, catalog, tmp_path)
    assert order_ids(copy) == list(range(10))
    assert len(copy.metadata.snapshots) == 1


def _copy_all(process: SparkProcess, catalog: SqlCatalog, folder: Path) -> None:
    """Start the stream until it has copied what is there."""
    for _ in range(_TRIES):
        error = process.call(_copy, dict(catalog.properties), str(folder))
        if not error:
            return
        assert _FAILURE in error
    pytest.fail(f"the stream failed {_TRIES} times")


def _copy(spark: Any, properties: dict[str, str], folder: str) -> str:
    """In the session's process: copy what is there, and return the error if the stream fails."""
    from pyspark.errors import StreamingQueryException

    spark.dataSource.register(IcestreamSource)
    with opened(properties) as catalog:
        copying = Copying(spark, catalog, Path(folder), into="db.copy", stream_id="copy")
        try:
            copying.run()
        except StreamingQueryException as error:
            return str(error)
        return ""
