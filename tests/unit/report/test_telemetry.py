"""Spans and metrics never fail the work that they describe, and need no OpenTelemetry."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from opentelemetry import trace
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.report import telemetry
from icestream.report.telemetry import Observation, measure, observe
from tests.support.loads import ids, make_table
from tests.support.process import REPOSITORY


class _Broken:
    """A part of an SDK of which every call fails."""

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> Any:
            raise RuntimeError("the exporter is gone")

        return fail


def _broken_api() -> Any:
    instruments = dict.fromkeys(("iceberg.scan.rows", "iceberg.scan.duration"), _Broken())
    api = telemetry._Api(trace, _Broken(), instruments)
    return mock.patch.object(telemetry, "_api", return_value=api)


def test_a_span_ends_once() -> None:
    span = Observation()
    assert span.end()
    assert not span.end(ValueError("late"))


def test_without_an_api_nothing_is_recorded() -> None:
    with mock.patch.object(telemetry, "_api", return_value=None):
        span = observe("iceberg.scan", {"iceberg.table": "db.t"})
        assert not span.recording
        with span.current():
            span.note({"iceberg.scan.rows": 1})
        measure({"iceberg.scan.rows": 1}, {})
        assert span.end()


def test_an_sdk_that_fails_is_ignored() -> None:
    with _broken_api():
        span = observe("iceberg.scan", {"iceberg.table": "db.t"})
        span._span = _Broken()
        with span.current():
            span.note({"iceberg.scan.rows": 1})
        measure({"iceberg.scan.rows": 1, "iceberg.scan.duration": 0.5}, {})
        assert span.end(ValueError("secret"))


def test_an_error_inside_a_span_is_raised_as_it_is() -> None:
    with _broken_api():
        span = observe("iceberg.scan", {})
        span._span = _Broken()
        with pytest.raises(ValueError, match="ours"), span.current():
            raise ValueError("ours")


_LOAD_AND_SCAN = """
import sys, pathlib
{before}
import icestream as ice
{imported}
import pyarrow as pa
from icestream.catalogs.lookup import make_local_catalog
catalog = make_local_catalog(pathlib.Path(sys.argv[1]))
catalog.create_namespace_if_not_exists("db")
table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
ice.append(table, pa.table({{"id": [1, 2, 3]}}))
assert sum(batch.num_rows for batch in ice.scan(table)) == 3
{after}
"""


_ABSENT = """
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "opentelemetry":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def _run(
    folder: Path, before: str = "", imported: str = "", after: str = ""
) -> subprocess.CompletedProcess[str]:
    source = _LOAD_AND_SCAN.format(before=before, imported=imported, after=after)
    return subprocess.run(
        [sys.executable, "-c", source, str(folder)], cwd=REPOSITORY, capture_output=True, text=True
    )


def test_opentelemetry_is_not_imported_for_an_application_that_does_not_use_it(
    tmp_path: Path,
) -> None:
    after = "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    done = _run(tmp_path, after=after)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_everything_works_without_opentelemetry(tmp_path: Path) -> None:
    after = "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    done = _run(tmp_path, _ABSENT, after=after)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_broken_opentelemetry_is_as_none(tmp_path: Path) -> None:
    before = "import types\nsys.modules['opentelemetry'] = types.ModuleType('opentelemetry')"
    done = _run(tmp_path, before)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_library_prints_nothing_even_where_it_warns(tmp_path: Path) -> None:
    after = """
import logging
for name in ("icestream.commit", "icestream.scan", "icestream.read.decode.files"):
    logging.getLogger(name).warning("a warning that nobody asked for")
"""
    imported = "assert 'opentelemetry' not in sys.modules"
    done = _run(tmp_path, imported=imported, after=after)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_commit_and_a_scan_are_a_line_each(
    catalog: SqlCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    table = make_table(catalog)
    with caplog.at_level(logging.INFO, "icestream"):
        report = ice.append(table, ids(0, 100))
        list(ice.scan(table))
    lines = [(line.name, line.levelname, line.message) for line in caplog.records]
    commit, scan = [line for line in lines if line[1] != "DEBUG"]
    assert commit[:2] == ("icestream.commit", "INFO")
    assert commit[2].startswith(
        f"append of db.t is snapshot {report.snapshot_id}: 100 rows inserted, 0 updated, 0 deleted"
    )
    assert scan[:2] == ("icestream.scan", "INFO")
    assert scan[2].startswith("scan of db.t finished: 100 rows of 1 files in ")
