"""Avro files, on a Spark that has `spark-avro`: given when it starts, or by the source."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from tests.interop.fetch_jars import fetched_jar
from tests.support.java_process import JAVA_PYTHON
from tests.support.process import REPOSITORY
from tests.support.tables import make_catalog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

_TYPES = {
    "id": LongType(),
    "small": IntegerType(),
    "price": DecimalType(10, 2),
    "order": StringType(),
    "ok": BooleanType(),
    "ratio": DoubleType(),
    "short": FloatType(),
    "day": DateType(),
    "moment": TimestamptzType(),
    "raw": BinaryType(),
    "tags": ListType(20, StringType(), element_required=True),
}
SCHEMA = Schema(
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, kind) in enumerate(_TYPES.items(), start=1)
    )
)
DAY = dt.date(2026, 11, 16)
MOMENT = dt.datetime(2026, 11, 16, 8, 0, 0, 125, tzinfo=dt.UTC)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ROWS = [
    {
        "id": number,
        "small": -number,
        "price": Decimal(number) / 4,
        "order": f"Åse {number}",
        "ok": number % 2 == 0,
        "ratio": number / 8,
        "short": number / 2,
        "day": DAY + dt.timedelta(days=number),
        "moment": MOMENT + dt.timedelta(days=number),
        "raw": bytes([number % 256]),
        "tags": ["a", "b"] if number % 3 else [],
    }
    for number in range(1, 1001)
]
NULLS: dict[str, Any] = dict.fromkeys(_TYPES) | {"id": 0}


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    """A file by PyIceberg, which is not Spark's own writer."""

    def stored(row: dict[str, Any]) -> Record:
        value = dict(row)
        if row["day"] is not None:
            value["day"] = (row["day"] - _EPOCH.date()).days
            value["moment"] = (row["moment"] - _EPOCH) // dt.timedelta(microseconds=1)
            value["price"] = row["price"].quantize(Decimal("0.01"))
        return Record(*value.values())

    output = PyArrowFileIO().new_output(f"file://{path}")
    with AvroOutputFile[Record](output, SCHEMA, "rows") as writer:
        writer.write_block([stored(row) for row in rows])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files."""
    folder = tmp_path_factory.mktemp("avro")
    _write(folder / "a.avro", ROWS[:400])
    _write(folder / "b.avro", [*ROWS[400:], NULLS])
    return folder


@pytest.fixture(scope="module")
def jar() -> str:
    return fetched_jar("sources", "spark-avro_*.jar")


def _loads(folder: Path, *sources: dict[str, Any], **settings: str) -> list[dict[str, Any]]:
    """What became of loads in a session of .venv-interop."""
    if not JAVA_PYTHON.exists():
        raise FileNotFoundError(f"{JAVA_PYTHON} is missing: run `make java`")
    request = {"folder": str(folder), "sources": sources, "settings": settings}
    done = subprocess.run(
        [JAVA_PYTHON, "-W", "ignore", "-m", "tests.interop.avro_loads"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _check(folder: Path, report: dict[str, Any]) -> None:
    assert (report.get("rows_read"), report.get("rows_inserted")) == (1001, 1001), report
    catalog = make_catalog(folder)
    table = catalog.load_table("db.t")
    found = {field.name: str(field.field_type) for field in table.schema().fields}
    assert found == {name: str(kind) for name, kind in _TYPES.items()}
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [NULLS, *ROWS]
    catalog.close()


def test_files_are_loaded_by_a_session_that_was_started_with_the_jar(
    files: Path, jar: str, tmp_path: Path
) -> None:
    source = {"path": f"{files}/*.avro", "format": "avro"}
    (report,) = _loads(tmp_path, source, **{"spark.jars": jar})
    _check(tmp_path, report)


def test_files_are_loaded_by_a_session_that_gets_the_jar_with_the_source(
    files: Path, jar: str, tmp_path: Path
) -> None:
    source = {"spark_format": "avro", "paths": [f"{files}/a.avro", f"{files}/b.avro"]}
    gone = {"path": f"{files}/gone.avro", "format": "avro"}
    options = {"options": {"jar": jar}}
    without, report, not_there = _loads(tmp_path, source, source | options, gone | options)
    assert without["error"] == "MissingExtraError"
    assert "give its jar as option 'jar'" in without["text"]
    assert "org.apache.spark:spark-avro_2.13:4.1." in without["text"]
    _check(tmp_path, report)
    assert not_there["error"] == "SourceError"
    assert "gone.avro" in not_there["text"]
