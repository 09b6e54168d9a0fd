"""Addresses of databases: the driver, the path, and no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from icestream.pipeline.request.database_address import (
    DatabaseAddress,
    is_database,
    placed_address,
    shown_address,
)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sqlite:///x.db", DatabaseAddress("sqlite", path="x.db")),
        ("sqlite:////data/x.db", DatabaseAddress("sqlite", path="/data/x.db")),
        ("sqlite:x.db", DatabaseAddress("sqlite", path="x.db")),
        ("jdbc:sqlite:/data/x.db", DatabaseAddress("sqlite", path="/data/x.db")),
        ("duckdb:///a b.duckdb", DatabaseAddress("duckdb", path="a b.duckdb")),
        ("adbc:flightsql:grpc://h:1", DatabaseAddress("adbc", name="flightsql", uri="grpc://h:1")),
        ("jdbc:postgresql://h/d", DatabaseAddress("postgres")),
        ("postgres://h/d", DatabaseAddress("postgres")),
        ("jdbc:mysql://h/d", DatabaseAddress("jdbc")),
        ("jdbc:postgresqlish://h/d", DatabaseAddress("jdbc")),
    ],
)
def test_the_address_names_what_reads_the_database(url: str, address: DatabaseAddress) -> None:
    assert is_database(url)
    assert DatabaseAddress.of(url) == address
    assert DatabaseAddress.of(url, has_jar=True).driver == "jdbc"


def test_files_and_folders_are_not_databases() -> None:
    assert not any(map(is_database, ["sqlite.csv", "x.db", "s3://b/x", "table:db.t"]))


def test_a_path_is_relative_to_the_folder_of_the_pipeline_file() -> None:
    folder = Path("/data")
    assert placed_address("sqlite:///x.db", folder) == "sqlite:////data/x.db"
    assert placed_address("duckdb:///../x.db", folder) == "duckdb:////data/../x.db"
    assert placed_address("sqlite:////y/x.db", folder) == "sqlite:////y/x.db"
    assert placed_address("postgresql://h/d", folder) == "postgresql://h/d"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:////data/x.db", "sqlite:////data/x.db"),
        ("adbc:sqlite:x.db", "adbc:sqlite:x.db"),
        ("adbc:snowflake:me:hush@account/db", "adbc:snowflake:account/db"),
        ("adbc:flightsql:grpc+tls://me:hush@host:443", "adbc:flightsql:grpc+tls://host:443"),
        ("postgresql://me:hush@host/db", "postgresql://host/db"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_address(url) == shown
