"""PostgreSQL as a source of loads: every type, on both engines, and no password anywhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from sqlalchemy import create_engine, text

import icestream as ice
from icestream.errors import MissingExtraError, SourceError
from icestream.pipeline.inputs import postgres_source
from tests.support.postgres import postgres_binaries, postgres_server
from tests.support.tables import make_catalog

pytestmark = pytest.mark.timeout(120)

ROW = {
    "id": 1,
    "small": 2,
    "price": Decimal("12.50"),
    "many": Decimal("0.125000000000000000"),
    "name": "Åse",
    "ok": True,
    "ratio": 0.5,
    "day": dt.date(2026, 11, 16),
    "at": dt.datetime(2026, 11, 16, 8, 0, 0, 125),
    "moment": dt.datetime(2026, 11, 16, 8, tzinfo=dt.UTC),
    "raw": b"\x01\x02",
    "code": "6f1c7dd4-6a7e-4a5f-9b39-1c4b1e8d0a01",
    "codes": ["6f1c7dd4-6a7e-4a5f-9b39-1c4b1e8d0a01"],
    "net": "10.0.0.0/8",
    "paid": "$1.50",
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL's server is not installed (apt install postgresql)")
    with postgres_server() as uri:
        engine = create_engine(uri)
        with engine.begin() as connection:
            connection.execute(
                text(
                    "CREATE TABLE orders (id bigint, small int, price numeric(10, 2), many numeric,"
                    " name text, ok boolean, ratio double precision, day date, at timestamp,"
                    " moment timestamptz, raw bytea, code uuid, codes uuid[], net inet, paid money)"
                )
            )
            connection.execute(
                text(
                    "INSERT INTO orders VALUES (:id, :small, :price, :many, :name, :ok, :ratio,"
                    " :day, :at, :moment, :raw, CAST(:code AS uuid), CAST(:codes AS uuid[]),"
                    " :net, CAST(:paid AS money))"
                ),
                ROW,
            )
            connection.execute(text("INSERT INTO orders (id) SELECT generate_series(2, 20000)"))
        engine.dispose()
        yield uri.replace("postgresql+psycopg2:", "jdbc:postgresql:")


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param == "local":
        return {"engine": "local"}
    return {"engine": "spark", "spark": request.getfixturevalue("running_spark")}


def test_a_table_and_a_query_are_loaded(
    url: str, catalog: Catalog, tmp_path: Path, engine: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"catalog": catalog, "state": tmp_path / "state", **engine}
    report = ice.load({"jdbc": url, "table": "orders"}, "db.t", **options)
    assert isinstance(report, ice.LoadReport)
    assert report.rows_read == report.rows_inserted == 20_000
    found = catalog.load_table("db.t").scan(row_filter="id = 1").to_arrow().to_pylist()
    assert found == [ROW]
    kinds = {f.name: str(f.field_type) for f in catalog.load_table("db.t").schema().fields}
    assert kinds["price"] == "decimal(10, 2)"
    assert kinds["moment"] == "timestamptz"
    query = "SELECT id, code FROM orders WHERE id > 19990 OR id = 1;"
    ice.load({"jdbc": url, "query": query}, "db.q", **options)
    rows = catalog.load_table("db.q").scan().to_arrow().sort_by("id").to_pylist()
    assert len(rows) == 11
    assert rows[0] == {"id": 1, "code": ROW["code"]}
    with pytest.raises(SourceError, match="nothing") as raised:
        ice.load(
            {"jdbc": url, "query": "SELECT nothing", "user": "tests", "password": "hunter2"},
            "db.q",
            **options,
        )
    assert "hunter2" not in str(raised.value)


def test_without_adbc_the_local_engine_says_what_to_install(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_source, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"icestream\[postgres\]"):
        ice.load(
            "jdbc:postgresql://host/db?table=t", "db.t", engine="local", catalog=catalog, state=""
        )
