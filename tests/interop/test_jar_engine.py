"""`engine="iceberg-jar"`: the same loads, written by Iceberg's own runtime for Spark."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import icestream as ice
from icestream.pipeline.engines.jar.jar_engine import _shown
from tests.interop.fetch_jars import fetched_jar
from tests.support.java_process import JAVA_PYTHON
from tests.support.process import REPOSITORY
from tests.support.tables import make_catalog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def _file(folder: Path, name: str, ids: range | list[int], text: str, **more: list[Any]) -> str:
    columns = {"id": list(ids), "text": [text] * len(ids), **more}
    pq.write_table(pa.table(columns), folder / name)
    return str(folder / name)


def _calls(folder: Path, *calls: dict[str, Any], jars: bool = True) -> list[dict[str, Any]]:
    """The results of loads in a session of .venv-interop."""
    if not JAVA_PYTHON.exists():
        raise FileNotFoundError(f"{JAVA_PYTHON} is missing: run `make java`")
    named = [
        fetched_jar("spark", "iceberg-spark-runtime-*.jar"),
        fetched_jar("server", "sqlite-jdbc-*.jar"),
    ]
    settings = {"spark.jars": ",".join(named)} if jars else {}
    request = {"folder": str(folder), "settings": settings, "calls": calls}
    done = subprocess.run(
        [JAVA_PYTHON, "-W", "ignore", "-m", "tests.interop.jar_loads"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _load(source: str, **options: Any) -> dict[str, Any]:
    return {"sources": source, "into": "db.t", "engine": "iceberg-jar", **options}


def _rows(table: Table, **scan: Any) -> list[tuple[int, str]]:
    rows = table.scan(**scan).to_arrow().sort_by("id").to_pylist()
    return [(row["id"], row["text"]) for row in rows]


def _is_by_java(table: Table) -> bool:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return "spark.app.id" in snapshot.summary.additional_properties


def test_append_replace_and_merge_write_the_rows_that_the_other_engines_write(
    tmp_path: Path,
) -> None:
    first = _file(tmp_path, "a.parquet", range(10), "a")
    more = _file(tmp_path, "b.parquet", range(10, 15), "b")
    changes = _file(tmp_path, "c.parquet", [3, 4, 20], "c", op=["U", "D", "U"])
    other = _file(tmp_path, "d.parquet", range(2), "d")
    merge = {"mode": "merge", "keys": ["id"], "delete_when": "op = 'D'", "schema_mode": "discard"}
    created, appended, repeated, merged = _calls(
        tmp_path,
        _load(first, load_id="one", partition_by=["bucket(4, id)"]),
        _load(more, load_id="two"),
        _load(more, load_id="two"),
        _load(changes, **merge),
    )
    catalog = make_catalog(tmp_path)
    table = catalog.load_table("db.t")
    assert _is_by_java(table)
    assert created["created"], created
    assert created["rows_inserted"] == 10
    assert appended["rows_inserted"] == 5
    assert repeated["status"] == "already loaded"
    assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
    expected = dict.fromkeys(range(10), "a") | dict.fromkeys(range(10, 15), "b") | {3: "c", 20: "c"}
    del expected[4]
    assert merged.get("snapshot_id"), merged
    assert _rows(table) == sorted(expected.items())
    assert len(table.history()) == 3  # one snapshot for each load that was not repeated
    (replaced,) = _calls(tmp_path, _load(other, mode="replace"))
    assert replaced["rows_inserted"] == 2, replaced
    assert _rows(table.refresh()) == [(0, "d"), (1, "d")]
    assert len(table.history()) == 4
    catalog.close()


def test_keys_are_checked_as_in_other_merges(tmp_path: Path) -> None:
    first = _file(tmp_path, "a.parquet", range(3), "a")
    twice = _file(tmp_path, "b.parquet", [7, 7], "b", at=[1, 2])
    merge = {"mode": "merge", "keys": ["id"], "schema_mode": "discard"}
    _, refused, merged = _calls(
        tmp_path,
        _load(first),
        _load(twice, **merge),
        _load(twice, on_duplicate="last", last_by="at", **merge),
    )
    assert refused["error"] == "DuplicateKeysError"
    assert merged["rows_inserted"] == 1, merged


def test_tests_of_a_pipeline_file_gate_the_load(tmp_path: Path) -> None:
    _file(tmp_path, "a.parquet", range(3), "a")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        dedent(
            """
            name: shop
            defaults: {engine: iceberg-jar}
            loads:
              t:
                source: a.parquet
                into: db.t
                schema_mode: evolve
                tests: [{unique: id}]
            """
        )
    )
    (run,) = _calls(tmp_path, {"pipeline": str(pipeline)})
    assert run["loads"][0]["status"] == "done", run
    _file(tmp_path, "a.parquet", [1, 9], "a", extra=[1, 2])
    (run,) = _calls(tmp_path, {"pipeline": str(pipeline)})
    assert run["error"] == "ChecksFailedError", run
    assert "unique id" in run["text"]
    catalog = make_catalog(tmp_path)
    table = catalog.load_table("db.t")
    assert _is_by_java(table)
    assert _rows(table) == [(0, "a"), (1, "a"), (2, "a")]
    catalog.close()


@pytest.mark.parametrize(
    ("java", "kind"),
    [
        ("org.apache.iceberg.exceptions.ValidationException: x", ice.CommitConflictError),
        ("org.apache.iceberg.exceptions.CommitFailedException: x", ice.CommitConflictError),
        (
            "org.apache.iceberg.exceptions.CommitStateUnknownException: x\n"
            "Caused by: org.apache.iceberg.exceptions.CommitFailedException: y",
            ice.CommitUnknownError,
        ),
    ],
)
def test_errors_of_the_runtime_keep_their_meaning(java: str, kind: type[Exception]) -> None:
    assert type(_shown(RuntimeError(java), "db.t")) is kind


def test_a_missing_file_of_the_table_is_a_typed_error(tmp_path: Path) -> None:
    first = _file(tmp_path, "a.parquet", range(3), "a")
    _calls(tmp_path, _load(first))
    catalog = make_catalog(tmp_path)
    snapshot = catalog.load_table("db.t").current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file:")).unlink()
    catalog.close()
    more = _file(tmp_path, "b.parquet", range(3, 5), "b")
    (answer,) = _calls(tmp_path, _load(more))
    assert answer["error"] == "TaskFailedError"


def test_a_spark_without_the_jar_says_what_is_missing(tmp_path: Path) -> None:
    first = _file(tmp_path, "a.parquet", range(3), "a")
    (answer,) = _calls(tmp_path, _load(first), jars=False)
    assert answer["error"] == "MissingExtraError"
    assert "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13" in answer["text"]
