"""A PyIceberg catalog as a catalog of Iceberg's runtime for Spark (the jar).

The jar has its own catalogs and its own names of properties. This module translates the properties
of a catalog that PyIceberg opened, so that a pipeline file needs no second configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog

from icestream.catalogs.redaction import error_text
from icestream.errors import InvalidArgumentError, MissingExtraError
from icestream.spark.setup.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_PLAIN_NAME = re.compile(r"\w+")
_JDBC_CATALOG = "org.apache.iceberg.jdbc.JdbcCatalog"
_GLUE_CATALOG = "org.apache.iceberg.aws.glue.GlueCatalog"
_KINDS = {"sql": "SqlCatalog", "rest": "RestCatalog", "hive": "HiveCatalog", "glue": "GlueCatalog"}
# PyIceberg's names of properties, and the jar's.
_STORAGE = {
    "s3.endpoint": "s3.endpoint",
    "s3.access-key-id": "s3.access-key-id",
    "s3.secret-access-key": "s3.secret-access-key",
    "s3.session-token": "s3.session-token",
    "s3.region": "client.region",
    "client.region": "client.region",
}
_REST = ("uri", "warehouse", "credential", "token", "scope", "oauth2-server-uri", "prefix")


def add_catalog(spark: SparkSession, catalog: Catalog) -> str:
    """Make a catalog known to a session, through Iceberg's runtime.

    A catalog of the same name that the session already has is used as it is configured there.

    Returns:
        The name of the catalog in the session.

    Raises:
        MissingExtraError: If Iceberg's runtime is not on Spark's class path.
        InvalidArgumentError: If the runtime has no such catalog.
    """
    name = catalog.name  # the runtime stores it with each table of a SQL catalog
    if not _PLAIN_NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"the catalog is called {name!r}, and Spark needs a name of letters, digits and "
            "underscores: configure the catalog under such a name, or use another engine"
        )
    prefix = f"spark.sql.catalog.{name}"
    if spark.conf.get(prefix, None) is None:
        for key, value in jar_properties(catalog).items():
            spark.conf.set(f"{prefix}.{key}", value)
        spark.conf.set(prefix, _SPARK_CATALOG)
    try:
        spark.sql(f"SHOW NAMESPACES IN `{name}`").collect()
    except Exception as error:
        text = str(error)
        spark.conf.unset(prefix)
        if _SPARK_CATALOG in text:
            version = ".".join(pyspark_module().__version__.split(".")[:2])
            raise MissingExtraError(
                "engine='iceberg-jar' needs Iceberg's runtime on Spark's class path: start Spark "
                "with spark.jars.packages set to "
                f"org.apache.iceberg:iceberg-spark-runtime-{version}_2.13 and a version, or leave "
                "engine out to write without the jar"
            ) from error
        shown = " ".join(error_text(error, catalog.properties).split("\n\nJVM")[0].split())[:500]
        raise InvalidArgumentError(
            f"Iceberg's runtime can't use the catalog {name!r}: {shown}"
        ) from error
    return name


def jar_properties(catalog: Catalog) -> dict[str, str]:
    """The properties of the jar's catalog for a PyIceberg catalog.

    Raises:
        InvalidArgumentError: If the runtime has no such catalog.
    """
    given = {key: str(value) for key, value in catalog.properties.items()}
    kinds = {each.__name__ for each in type(catalog).__mro__}
    storage = {_STORAGE[key]: value for key, value in given.items() if key in _STORAGE}
    if any(value.startswith("s3") for value in given.values()) or storage:
        storage["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    # Other programs change the tables, so the runtime must read their metadata again.
    storage["cache-enabled"] = "false"
    if _KINDS["rest"] in kinds:
        return storage | {"type": "rest"} | {key: given[key] for key in _REST if key in given}
    if _KINDS["hive"] in kinds:
        return storage | {"type": "hive"} | _named(given, "uri", "warehouse")
    if _KINDS["glue"] in kinds:
        return storage | {"catalog-impl": _GLUE_CATALOG} | _named(given, "warehouse")
    if _KINDS["sql"] in kinds:
        return storage | _jdbc_properties(catalog.name, given)
    raise InvalidArgumentError(
        f"the catalog {catalog.name!r} is a {type(catalog).__name__}, which Iceberg's runtime does "
        "not have: use a REST, SQL, Hive or Glue catalog, or another engine"
    )


def _jdbc_properties(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """A SQL catalog. The runtime calls it JDBC, and stores the same tables in the database."""
    address = urlsplit(given["uri"])
    dialect = address.scheme.partition("+")[0]
    if dialect == "sqlite" and not address.path.strip("/").replace(":memory:", ""):
        raise InvalidArgumentError(
            f"the catalog {name!r} is in memory, and Spark can't share it: use a catalog in a file "
            "or on a server, or another engine"
        )
    if dialect == "sqlite":
        uri = f"jdbc:sqlite:{given['uri'].partition('://')[2].removeprefix('/')}"
    elif dialect in ("postgresql", "mysql"):
        host = address.hostname or "localhost"
        port = f":{address.port}" if address.port else ""
        uri = f"jdbc:{dialect}://{host}{port}{address.path}"
    else:
        raise InvalidArgumentError(
            f"the catalog {name!r} is in a {dialect} database, which engine='iceberg-jar' does not "
            "support: use SQLite, PostgreSQL or MySQL, or another engine"
        )
    properties = {
        "catalog-impl": _JDBC_CATALOG,
        "uri": uri,
        # Both libraries store the name of the catalog with each table.
        "jdbc.schema-version": "V0",
    }
    if address.username:
        properties["jdbc.user"] = unquote(address.username)
    if address.password:
        properties["jdbc.password"] = unquote(address.password)
    return properties | _named(given, "warehouse")


def _named(given: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: given[name] for name in names if name in given}
