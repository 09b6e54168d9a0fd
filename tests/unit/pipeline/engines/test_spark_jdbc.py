"""The options of Spark's JDBC reader for a database; tests/interop tries it with a real one."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from icestream.errors import InvalidArgumentError
from icestream.pipeline.engines.spark_jdbc import jdbc_options
from icestream.pipeline.request.source_spec import SourceSpec


def _options(jdbc: str, **source: Any) -> dict[str, str]:
    given = source if "query" in source else {"table": "shop.Order", **source}
    return jdbc_options(SourceSpec.parse({"jdbc": jdbc, **given}))


@pytest.mark.parametrize(
    ("address", "url", "access"),
    [
        ("jdbc:mysql://host/db", "jdbc:mysql://host/db", {}),
        ("jdbc:mysql://me@host/db", "jdbc:mysql://host/db", {"user": "me"}),
        (
            "postgres://me:a%40b@host/db?ssl=true",
            "jdbc:postgresql://host/db?ssl=true",
            {"user": "me", "password": "a@b"},
        ),
        (
            "jdbc:mysql://me:a/b@c@host/db",  # as drivers would not take it, but people write it
            "jdbc:mysql://host/db",
            {"user": "me", "password": "a/b@c"},
        ),
        ("jdbc:oracle:thin:me/hush@//host/db", "jdbc:oracle:thin:me/hush@//host/db", {}),
    ],
)
def test_user_and_password_of_an_address_are_options(
    address: str, url: str, access: dict[str, str]
) -> None:
    reader = _options(address)
    assert reader["url"] == url
    assert {key: reader[key] for key in ("user", "password") if key in reader} == access


def test_rows_are_fetched_in_parts_unless_the_caller_says_otherwise() -> None:
    assert _options("jdbc:mysql://host/db")["fetchsize"] == "1000"
    reader = _options("jdbc:mysql://host/db", options={"fetchSize": 5})
    assert {key: value for key, value in reader.items() if key.lower() == "fetchsize"} == {
        "fetchSize": "5"
    }


def test_a_table_of_postgresql_has_the_name_that_was_written() -> None:
    assert _options("jdbc:postgresql://host/db")["dbtable"] == '"shop"."Order"'
    assert _options("jdbc:mysql://host/db")["dbtable"] == "shop.Order"
    reader = _options("jdbc:postgresql://host/db", query="SELECT 1")
    assert reader["query"] == "SELECT 1"
    assert "dbtable" not in reader


def test_the_driver_is_the_one_that_a_jar_names(tmp_path: Path) -> None:
    for name, files in {
        "other.jar": {"a.txt": "a"},
        "driver.jar": {"META-INF/services/java.sql.Driver": "# ours\norg.some.Driver # the one\n"},
    }.items():
        with zipfile.ZipFile(tmp_path / name, "w") as jar:
            for path, text in files.items():
                jar.writestr(path, text)
    jars = f"{tmp_path}/other.jar, {(tmp_path / 'driver.jar').as_uri()}"
    reader = _options("jdbc:some://host/db", options={"jar": jars})
    assert reader["driver"] == "org.some.Driver"
    assert "jar" not in reader
    own = _options("jdbc:some://host/db", options={"jar": jars, "driver": "my.Driver"})
    assert own["driver"] == "my.Driver"
    with pytest.raises(InvalidArgumentError, match=r"'/nowhere/x\.jar' does not exist"):
        _options("jdbc:some://host/db", options={"jar": "/nowhere/x.jar"})
    assert "driver" not in _options("jdbc:some://host/db", options={"jar": "s3://bucket/x.jar"})
