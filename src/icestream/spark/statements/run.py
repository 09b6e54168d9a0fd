"""`sql`: runs a SQL statement on Iceberg tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.report.write_report import WriteReport
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.registration import setting
from icestream.spark.setup.spark_session import session as new_session
from icestream.spark.statements.change_rows import run_delete, run_update
from icestream.spark.statements.insert_rows import run_insert
from icestream.spark.statements.merge_into import run_merge
from icestream.spark.statements.names import Names
from icestream.spark.statements.query import Session, check_text
from icestream.spark.statements.table_ddl import run_create, run_drop
from icestream.spark.statements.words import Cursor, refused, words_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY_WORDS = ("SELECT", "VALUES", "FROM", "")
_OTHERS = (
    "it runs queries, INSERT, DELETE, UPDATE, MERGE, CREATE TABLE and DROP TABLE. For other "
    "changes to an Iceberg table use PyIceberg, and for Spark's own tables spark.sql"
)


def sql(
    text: str,
    *,
    spark: SparkSession | None = None,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
) -> DataFrame | WriteReport | Table | None:
    """Run a SQL statement on the tables of PyIceberg's catalogs.

    `cat.db.t` is table `db.t` of catalog `cat` in PyIceberg's configuration, and `db.t` is a table
    of the default catalog. If Spark has a table or view of the same name, that one is used. All
    reads of one statement see the same state of a table.

    Args:
        text: One statement in Spark's SQL. docs/spark.md lists the statements.
        spark: A session, classic or Spark Connect. By default the active one, or else a new one.
        catalog: The catalog of names without a catalog: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default catalog.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.

    Returns:
        A DataFrame for a query. A `WriteReport` for INSERT, DELETE, UPDATE and CREATE TABLE ... AS,
        and a `MergeReport` for MERGE. The new table for CREATE TABLE. None for DROP TABLE, and for
        CREATE TABLE IF NOT EXISTS if the table exists.

    Raises:
        InvalidArgumentError: If the text can't be parsed, or uses something that is not supported.
            The message names it, and nothing was changed.
        CatalogError: If the catalog can't be reached, or has no such table.
        SchemaMismatchError: If the rows of a query do not fit the table.

    Memory: each running task stays within `memory`, in addition to Python and Spark themselves.
    """
    pyspark_module()  # raise before anything is read if PySpark is missing
    spark = spark or pyspark_module("pyspark.sql").SparkSession.getActiveSession() or new_session()
    check_text(spark, text)
    case_sensitive = (setting(spark, "spark.sql.caseSensitive") or "").lower() == "true"
    session = Session(spark, Names(spark, catalog), memory, case_sensitive)
    cursor = Cursor(text, words_of(text))
    ctes = _skip_ctes(cursor)
    verb = cursor.keyword()
    if verb in _QUERY_WORDS:
        return session.query(cursor.between(0, len(cursor.words)))
    if verb not in _STATEMENTS:
        shown = " ".join(text[cursor.start :].split()[:2])
        raise refused(f"the statement {shown}", _OTHERS)
    cursor.place += 1
    return _STATEMENTS[verb](session, cursor, ctes)


def _skip_ctes(cursor: Cursor) -> str:
    """Read a WITH clause. Returns its text."""
    start = cursor.place
    if not cursor.accept("WITH"):
        return ""
    cursor.accept("RECURSIVE")
    while True:
        cursor.name()
        if cursor.symbol() == "(":
            cursor.group()
        while not cursor.accept("AS"):
            cursor.read()
        cursor.group()
        if not cursor.accept_symbol(","):
            return f"{cursor.between(start, cursor.place)} "


_STATEMENTS: dict[str, Callable[[Session, Cursor, str], WriteReport | Table | None]] = {
    "CREATE": run_create,
    "DELETE": run_delete,
    "DROP": run_drop,
    "INSERT": run_insert,
    "MERGE": run_merge,
    "UPDATE": run_update,
}
