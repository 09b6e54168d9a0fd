"""PostgreSQL by Spark's JDBC reader, with the jar of its driver: the same as by ADBC."""

from __future__ import annotations

import datetime as dt
import shutil
import socket
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

import icestream as ice
from icestream.errors import IcestreamError, InvalidArgumentError, MissingExtraError, SourceError
from tests.interop.fetch_jars import fetched_jar
from tests.support.postgres import postgres_binaries, postgres_server
from tests.support.process import REPOSITORY, run_in_fresh_process
from tests.support.spark_process import SparkProcess
from tests.support.tables import make_catalog

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

PASSWORD = "hush?47/11@hush"
WRONG = "hush-wrong"
ROWS = 5000
# Keywords of SQL and capitals, which have to be quoted everywhere.
TABLE = "Order"
_CREATE = """
    CREATE TABLE "Order" (id bigint, small smallint, middle int, price numeric(10, 2), many numeric,
    "select" text, "Group" varchar(20), ok boolean, ratio double precision, short real, day date,
    at timestamp, moment timestamptz, raw bytea, code uuid)
"""
_INSERT = """
    INSERT INTO "Order" VALUES (1, 2, 3, 12.50, 0.125, 'Åse', 'b', true, 0.5, 0.25, '2026-11-16',
    '2026-11-16 08:00:00.000125', '2026-03-29 02:30:00+01', '\\x0102',
    '6f1c7dd4-6a7e-4a5f-9b39-1c4b1e8d0a01'),
    (2, -2, -3, -12.50, -0.125, '', ' ', false, '-Infinity', 'NaN', '1969-12-31',
    '1900-01-01 00:00:00', '1900-01-01 00:00:00+00', '', NULL)
"""
FIRST = {
    "id": 1,
    "small": 2,
    "middle": 3,
    "price": Decimal("12.50"),
    "many": Decimal("0.125000000000000000"),
    "select": "Åse",
    "Group": "b",
    "ok": True,
    "ratio": 0.5,
    "short": 0.25,
    "day": dt.date(2026, 11, 16),
    "at": dt.datetime(2026, 11, 16, 8, 0, 0, 125),
    "moment": dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),
    "raw": b"\x01\x02",
    "code": "6f1c7dd4-6a7e-4a5f-9b39-1c4b1e8d0a01",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a database on loopback, which asks for a password."""
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (apt install postgresql)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with postgres_server(port) as uri:
        engine = create_engine(uri)
        with engine.begin() as connection:
            for statement in (
                _CREATE,
                _INSERT,
                f'INSERT INTO "Order" (id) SELECT generate_series(3, {ROWS})',
                f"CREATE ROLE loader LOGIN PASSWORD '{PASSWORD}'",
                'GRANT SELECT ON "Order" TO loader',
            ):
                connection.execute(text(statement.replace(":", r"\:")))
        engine.dispose()
        yield f"jdbc:postgresql://127.0.0.1:{port}/postgres"


@pytest.fixture(scope="module")
def jar() -> str:
    return fetched_jar("sources", "postgresql-*.jar")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkProcess]:
    """A session in another zone than UTC, started without the jar."""
    settings = {"spark.driver.extraJavaOptions": "-Duser.timezone=America/New_York"}
    with SparkProcess(master="local[2]", memory="64MB", config=settings) as running:
        yield running


@pytest.fixture
def source(address: str, jar: str) -> dict[str, Any]:
    """The table by JDBC."""
    access = {"user": "loader", "password": PASSWORD}
    return {"jdbc": address, "table": TABLE, "options": {"jar": jar}, **access}


def load_on(spark: Any, folder: Path, source: Any, into: str, **options: Any) -> ice.LoadReport:
    """A load into a catalog below a folder; also called in other processes."""
    catalog = make_catalog(folder)
    try:
        report = ice.load(
            source, into, catalog=catalog, state=folder / "state", spark=spark, **options
        )
        assert isinstance(report, ice.LoadReport)
        return report
    finally:
        catalog.close()


def run_file(folder: str) -> str:
    """A pipeline file in a process that has no session yet."""
    catalog = make_catalog(Path(folder))
    try:
        report = ice.run(Path(folder, "pipeline.yaml"), catalog=catalog, state=f"{folder}/state")
        return str(report)
    finally:
        catalog.close()


def _rows(folder: Path, name: str) -> pa.Table:
    catalog = make_catalog(folder)
    try:
        return catalog.load_table(name).scan().to_arrow().sort_by("id")
    finally:
        catalog.close()


def _hides_the_password(shown: str, folder: Path) -> None:
    """Neither what is shown nor any file has a part of it."""
    assert "hush" not in shown
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".yaml":
            assert b"hush" not in path.read_bytes(), path


def test_rows_and_types_are_those_of_adbc(
    spark: SparkProcess, source: dict[str, Any], tmp_path: Path
) -> None:
    report = spark.call(load_on, tmp_path, source, "db.jdbc")
    assert report.rows_read == report.rows_inserted == ROWS
    _hides_the_password(str(report), tmp_path)
    by_adbc = {key: value for key, value in source.items() if key != "options"}
    spark.call(load_on, tmp_path, by_adbc, "db.adbc")
    load_on(None, tmp_path, by_adbc, "db.local", engine="local")
    found = _rows(tmp_path, "db.jdbc")
    assert found.slice(0, 1).to_pylist() == [FIRST]
    for other in ("db.adbc", "db.local"):
        expected = _rows(tmp_path, other)
        assert found.schema == expected.schema
        # As text, since NaN is unlike itself.
        assert list(map(str, found.to_pylist())) == list(map(str, expected.to_pylist()))


def test_a_query_is_loaded_by_an_address_that_has_user_and_password(
    spark: SparkProcess, address: str, jar: str, tmp_path: Path
) -> None:
    quoted = "hush%3F47%2F11%40hush"
    for number, with_access in enumerate(
        (
            address.replace("//", f"//loader:{quoted}@"),
            f"{address}?user=loader&password={quoted}",
            address.replace("jdbc:postgresql://", f"postgres://loader:{quoted}@"),
        )
    ):
        query = 'SELECT id, "select" FROM "Order" WHERE id <= 2'
        source = {"jdbc": with_access, "query": query, "options": {"jar": jar}}
        report = spark.call(load_on, tmp_path, source, f"db.q{number}")
        assert report.rows_inserted == 2
        _hides_the_password(str(report), tmp_path)
        assert _rows(tmp_path, f"db.q{number}")["select"].to_pylist() == ["Åse", ""]


def test_the_jar_of_a_pipeline_file_is_found_beside_it_and_given_to_a_new_session(
    source: dict[str, Any], jar: str, tmp_path: Path
) -> None:
    shutil.copy(jar, tmp_path / "driver.jar")
    (tmp_path / "pipeline.yaml").write_text(
        f"""
        defaults: {{memory: 64MB, master: "local[1]"}}
        loads:
          orders:
            source:
              jdbc: {source["jdbc"]}
              table: {TABLE}
              user: loader
              password: "{PASSWORD}"
              options: {{jar: driver.jar}}
            into: db.t
            tests: [unique: id]
        """
    )
    shown = run_in_fresh_process(run_file, str(tmp_path), timeout_seconds=300).result
    _hides_the_password(shown, tmp_path)
    assert _rows(tmp_path, "db.t").num_rows == ROWS


def test_a_session_of_spark_connect_gets_the_jar_too(
    source: dict[str, Any], tmp_path: Path
) -> None:
    token = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "of these tests"}
    env = {"PYTHONPATH": str(REPOSITORY), **token}
    with SparkProcess(remote="local[2]", memory="64MB", env=env) as connected:
        report = connected.call(load_on, tmp_path, source, "db.t")
        assert report.rows_inserted == ROWS
        with pytest.raises(SourceError, match="Couldn't connect") as caught:
            connected.call(load_on, tmp_path, {**source, "password": WRONG}, "db.t")
    _hides_the_password("".join(traceback.format_exception(caught.value)), tmp_path)
    assert _rows(tmp_path, "db.t").slice(0, 1).to_pylist() == [FIRST]


@pytest.mark.parametrize(
    ("wrong", "kind", "says"),
    [
        ({"password": WRONG}, SourceError, "password authentication failed"),
        ({"table": "nothing"}, SourceError, "nothing"),
        ({"table": None, "query": 'SELECT 1 / (id - 5) FROM "Order"'}, IcestreamError, "by zero"),
        ({"options": {"jar": "/nowhere/x.jar"}}, InvalidArgumentError, "'/nowhere/x.jar' is not"),
        ({"options": {"jar": "", "driver": "no.Driver"}}, MissingExtraError, "option 'jar'"),
    ],
)
def test_what_fails_says_why_without_the_password_and_leaves_no_table(
    spark: SparkProcess,
    source: dict[str, Any],
    tmp_path: Path,
    wrong: dict[str, Any],
    kind: type[Exception],
    says: str,
) -> None:
    merged = {key: value for key, value in {**source, **wrong}.items() if value is not None}
    with pytest.raises(kind, match=says) as caught:
        spark.call(load_on, tmp_path, merged, "db.wrong")
    _hides_the_password("".join(traceback.format_exception(caught.value)), tmp_path)
    catalog = make_catalog(tmp_path)
    assert not catalog.table_exists("db.wrong")
    catalog.close()
