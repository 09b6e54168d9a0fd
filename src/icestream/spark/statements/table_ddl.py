"""CREATE TABLE, CREATE TABLE ... AS and DROP TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from icestream.catalogs.lookup import described, not_created
from icestream.catalogs.redaction import error_text
from icestream.commit.new_table import new_table_schema
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.report.write_report import WriteReport
from icestream.spark.arrow.frame_schema import arrow_schema
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.statements.query import Session, spark_errors
from icestream.spark.statements.words import Cursor, Word, refused
from icestream.spark.writing.table_write import FrameWriteOptions
from icestream.spark.writing.written_frame import Creation, frame_options, write_frame
from icestream.write.partition.spec_text import partition_spec

_PROVIDERS = ("ICEBERG", "ICESTREAM")


@dataclass(slots=True)
class _NewTable:
    """The parts of CREATE TABLE."""

    columns: str = ""
    partition_by: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict, repr=False)
    location: str | None = None
    query: str = field(default="", repr=False)


def run_create(session: Session, cursor: Cursor, ctes: str) -> WriteReport | Table | None:
    """Run the statement after CREATE."""
    if not cursor.accept("TABLE"):
        raise refused(f"CREATE {cursor.keyword()} {cursor.keyword(1)}".strip())
    if_missing = cursor.accept("IF", "NOT", "EXISTS")
    parts = cursor.name().parts
    session.names.refuse_sparks(parts)
    catalog_name, identifier = session.names.place(parts)
    catalog = session.names.catalog(catalog_name)
    name = ".".join(identifier)
    new = _read(cursor)
    if _exists(catalog, name):
        if if_missing:
            return None
        raise _taken(name, catalog)
    if new.query:
        return _create_as(session, catalog, name, new)
    if not new.columns:
        raise refused("CREATE TABLE without columns", "list them, or add AS SELECT ...")
    try:
        return _create(session, catalog, name, new)
    except TableAlreadyExistsError as error:
        if if_missing:
            return None
        raise _taken(name, catalog) from error


def run_drop(session: Session, cursor: Cursor, ctes: str) -> None:
    """Run the statement after DROP."""
    if not cursor.accept("TABLE"):
        raise refused(f"DROP {cursor.keyword()}")
    if_exists = cursor.accept("IF", "EXISTS")
    parts = cursor.name().parts
    purges = cursor.accept("PURGE")
    if not cursor.at_end:
        raise cursor.unexpected("its end")
    session.names.refuse_sparks(parts)
    catalog_name, identifier = session.names.place(parts)
    catalog = session.names.catalog(catalog_name)
    name = ".".join(identifier)
    try:
        (catalog.purge_table if purges else catalog.drop_table)(name)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        if not if_exists:
            raise CatalogError(f"there is no table {name!r} in {described(catalog)}") from error
    except Exception as error:
        raise CatalogError(
            f"table {name!r} could not be dropped: {error_text(error, catalog.properties)}"
        ) from error


def _read(cursor: Cursor) -> _NewTable:
    new = _NewTable()
    if cursor.symbol() == "(":
        new.columns = cursor.between(*cursor.group())
    while not cursor.at_end:
        if cursor.accept("USING"):
            provider = cursor.read().keyword
            if provider not in _PROVIDERS:
                raise refused(f"CREATE TABLE ... USING {provider}", "leave USING out")
        elif cursor.accept("PARTITIONED", "BY"):
            new.partition_by = _texts(cursor)
        elif cursor.accept("TBLPROPERTIES"):
            new.properties |= _properties(cursor)
        elif cursor.accept("COMMENT"):
            new.properties["comment"] = _string(cursor.read())
        elif cursor.accept("LOCATION"):
            new.location = _string(cursor.read())
        elif cursor.accept("AS") or cursor.keyword() in ("SELECT", "WITH", "VALUES"):
            new.query = cursor.rest()
        else:
            raise refused(f"CREATE TABLE ... {cursor.read().text}")
    return new


def _create(session: Session, catalog: Catalog, name: str, new: _NewTable) -> Table:
    types = pyspark_module("pyspark.sql.types")
    with spark_errors():
        columns = types.StructType.fromDDL(new.columns)
    schema = _schema(name, columns, new.properties)
    spec = partition_spec(new.partition_by, schema)
    try:
        return catalog.create_table(
            name,
            schema,
            location=new.location,
            partition_spec=spec if spec.fields else UNPARTITIONED_PARTITION_SPEC,
            properties=new.properties,
        )
    except TableAlreadyExistsError:
        raise
    except Exception as error:
        raise not_created(name, error, catalog) from error


def _schema(name: str, columns: Any, properties: dict[str, str]) -> Schema:
    for column in columns.fields:
        if _has_required(column.dataType):
            raise refused(f"NOT NULL inside the column {column.name}")
    planned = new_table_schema(name, arrow_schema(columns), properties).schema
    if len(planned.fields) < len(columns.fields):
        raise refused("CREATE TABLE with a column of type VOID")
    return Schema(
        *(
            each.model_copy(
                update={
                    "required": not column.nullable,
                    "doc": (column.metadata or {}).get("comment"),
                }
            )
            for each, column in zip(planned.fields, columns.fields, strict=True)
        )
    )


def _has_required(kind: Any) -> bool:
    """Whether a nested type has a field that must not be null."""
    name = type(kind).__name__
    if name == "StructType":
        return any(not each.nullable or _has_required(each.dataType) for each in kind.fields)
    if name == "ArrayType":
        return _has_required(kind.elementType)
    if name == "MapType":
        return _has_required(kind.keyType) or _has_required(kind.valueType)
    return False


def _create_as(session: Session, catalog: Catalog, name: str, new: _NewTable) -> WriteReport:
    if new.columns or new.location:
        raise refused("CREATE TABLE ... AS with columns or LOCATION", "name columns in the query")
    frame = session.query(new.query)
    memory, case_sensitive = frame_options(frame, session.memory)
    options = FrameWriteOptions("append", memory=memory, case_sensitive=case_sensitive)
    creation = Creation(new.partition_by, (), new.properties, is_new=True)
    return write_frame(frame, name, catalog, options, creation=creation, distribution=None)


def _exists(catalog: Catalog, name: str) -> bool:
    try:
        return bool(catalog.table_exists(name))
    except Exception as error:
        raise CatalogError(
            f"table {name!r} could not be looked up in {described(catalog)}: "
            f"{error_text(error, catalog.properties)}"
        ) from error


def _taken(name: str, catalog: Catalog) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{described(catalog)} already has a table {name!r}: drop it, or use IF NOT EXISTS"
    )


def _texts(cursor: Cursor) -> list[str]:
    first, last = cursor.group()
    inner = Cursor(cursor.text, cursor.words[:last], first)
    texts = []
    while not inner.at_end:
        start = inner.place
        while not inner.at_end and inner.symbol() != ",":
            inner.skip()
        texts.append(inner.between(start, inner.place))
        inner.accept_symbol(",")
    return texts


def _properties(cursor: Cursor) -> dict[str, str]:
    properties = {}
    for text in _texts(cursor):
        pair = text.strip()
        key, _, value = pair.partition("=")
        properties[_unquoted(key)] = _unquoted(value)
    return properties


def _unquoted(text: str) -> str:
    text = text.strip()
    if "\\" in text or not text:
        raise refused(f"the property {text!r}", "write 'name' = 'value', without backslashes")
    return text[1:-1] if text[0] in "'\"`" and text[-1] == text[0] else text


def _string(word: Word) -> str:
    if word.kind != "string":
        raise refused(f"{word.text} as a text", "put it in quotes")
    return _unquoted(word.text)
