"""Reads a database with Spark's JDBC reader and the jar of its driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from icestream.catalogs.redaction import redact, shown_cause
from icestream.errors import MissingExtraError, SourceError
from icestream.pipeline.engines.spark_jars import JAR, add_jars, driver_class, named_jars
from icestream.pipeline.inputs.postgres_source import quoted_name
from icestream.pipeline.request.database_address import DatabaseAddress
from icestream.pipeline.request.source_spec import SourceSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_USER = re.compile(r"(jdbc:[\w:+.-]+://)([^?;]*)@(.*)", re.DOTALL)
_MOST_CAUSES = 4
# Without these options, drivers fetch all rows at once, and Spark reads timestamps without a zone
# in the zone of its JVM.
_DEFAULTS = {"fetchsize": "1000", "preferTimestampNTZ": "true"}


def jdbc_frame(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """The rows of a table or a query.

    Raises:
        InvalidArgumentError: If a jar does not exist.
        MissingExtraError: If Spark has no driver for the database.
        SourceError: If the database can't be reached, or the query is not valid.

    Memory: 1,000 rows in the JVM, or the number in the option `fetchsize`.
    """
    add_jars(spark, source)
    options = jdbc_options(source)
    reader = spark.read.format("jdbc")
    for key, value in options.items():
        reader = reader.option(key, value)
    try:
        frame = reader.load()
        frame.schema  # noqa: B018  # Spark Connect only connects now
        return frame
    except Exception as error:
        raw = _messages(error)
        secrets = {
            **options,
            "given": source.url or "",
            **dict(parse_qsl(options["url"].partition("?")[2])),
        }
        text = redact(raw, secrets)
        cause = shown_cause(error, secrets) if text == raw else None
        if "No suitable driver" in text or "ClassNotFound" in text:
            raise MissingExtraError(_no_driver(source)) from cause
        raise SourceError(f"{source.text} can't be read: {text[:500]}") from cause


def jdbc_options(source: SourceSpec) -> dict[str, str]:
    """The options of Spark's reader. Their names are case-insensitive."""
    url, access = _address(source)
    given = {key: str(value) for key, value in source.options.items() if key != JAR}
    known = {**_DEFAULTS, **access}
    if driver := driver_class(named_jars([source])):
        known["driver"] = driver
    has = {key.lower() for key in given}
    options = {key: value for key, value in known.items() if key.lower() not in has} | given
    if source.query:
        return {**options, "url": url, "query": source.query}
    table = str(source.table)
    return {**options, "url": url, "dbtable": quoted_name(table) if _is_postgres(source) else table}


def _address(source: SourceSpec) -> tuple[str, dict[str, str]]:
    """The address without user and password, and both as options, as most drivers expect."""
    url = f"jdbc:{(source.url or '').removeprefix('jdbc:')}"
    if _is_postgres(source):
        url = re.sub(r"^jdbc:postgres:", "jdbc:postgresql:", url)
    match = _USER.fullmatch(url)
    if match is None:
        return url, {}
    scheme, access, rest = match.groups()
    user, colon, password = access.partition(":")
    options = {"user": unquote(user)} | ({"password": unquote(password)} if colon else {})
    return scheme + rest, options


def _is_postgres(source: SourceSpec) -> bool:
    return DatabaseAddress.of(source.url or "").driver == "postgres"


def _messages(error: BaseException | None) -> str:
    """The messages of Spark's error and of the driver's errors that caused it."""
    messages: list[str] = []
    while error is not None and len(messages) < _MOST_CAUSES:
        text = " ".join(str(error).split("\n\nJVM stacktrace")[0].split())
        if not any(text in each for each in messages):
            messages.append(text)
        error = getattr(error, "_cause", None) or error.__cause__
    return ": ".join(messages)


def _no_driver(source: SourceSpec) -> str:
    jars = ", ".join(named_jars([source]))
    if jars:
        return (
            f"Spark finds no JDBC driver for {source.text} in {jars}: give the driver's own jar as "
            "option 'jar', and its class as option 'driver'"
        )
    return (
        f"Spark has no JDBC driver for {source.text}: give its jar as option 'jar' (or spark.jars "
        "of your session); for PostgreSQL no jar is needed with pip install 'icestream[postgres]'"
    )
