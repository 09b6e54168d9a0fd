"""PyIceberg's properties of a catalog, as those of Iceberg's runtime for Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from icestream.errors import InvalidArgumentError
from icestream.pipeline.engines.jar.jar_catalog import jar_properties


def _bare(kind: type, **properties: str) -> Any:
    """A catalog that was never connected."""
    catalog = kind.__new__(kind)
    catalog.name, catalog.properties = "shop", properties
    return catalog


def test_a_sqlite_catalog_becomes_a_jdbc_catalog_on_the_same_file(tmp_path: Path) -> None:
    catalog = SqlCatalog("shop", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    properties = jar_properties(catalog)
    catalog.close()
    assert properties["catalog-impl"] == "org.apache.iceberg.jdbc.JdbcCatalog"
    assert properties["uri"] == f"jdbc:sqlite:{tmp_path}/c.db"
    assert properties["warehouse"] == f"file://{tmp_path}"


def test_the_password_of_a_database_leaves_its_address() -> None:
    catalog = _bare(SqlCatalog, uri="postgresql+psycopg2://me:p%40ss@db:5433/cat")
    properties = jar_properties(catalog)
    assert properties["uri"] == "jdbc:postgresql://db:5433/cat"
    assert (properties["jdbc.user"], properties["jdbc.password"]) == ("me", "p@ss")


def test_a_rest_catalog_keeps_its_address_and_credentials() -> None:
    given = {"uri": "http://127.0.0.1:1", "token": "t", "warehouse": "w", "ssl": "no"}
    properties = jar_properties(_bare(RestCatalog, **given))
    assert properties["type"] == "rest"
    assert {key: properties[key] for key in ("uri", "token", "warehouse")} == {
        key: given[key] for key in ("uri", "token", "warehouse")
    }
    assert "ssl" not in properties


def test_keys_of_a_store_get_the_names_of_the_runtime() -> None:
    catalog = _bare(
        RestCatalog, uri="http://127.0.0.1:1", **{"s3.region": "eu", "s3.endpoint": "e"}
    )
    properties = jar_properties(catalog)
    assert properties["client.region"] == "eu"
    assert properties["s3.endpoint"] == "e"
    assert properties["io-impl"].endswith("S3FileIO")


@pytest.mark.parametrize("kind", [NoopCatalog])
def test_a_catalog_that_the_runtime_lacks_is_refused_by_name(kind: type) -> None:
    with pytest.raises(InvalidArgumentError, match=f"'shop' is a {kind.__name__}"):
        jar_properties(_bare(kind))


def test_a_database_in_memory_is_refused() -> None:
    catalog = InMemoryCatalog("shop")
    with pytest.raises(InvalidArgumentError, match="in memory"):
        jar_properties(catalog)
    catalog.close()
