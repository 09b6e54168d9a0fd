"""What a load is asked for is checked before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icestream.errors import InvalidArgumentError
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.source_spec import SourceSpec


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("data/*.parquet", "files"),
        (Path("data"), "files"),
        ("s3://bucket/x/*.csv.gz", "files"),
        ({"path": "a.txt", "format": "csv", "options": {"delimiter": ";"}}, "files"),
        ("table:db.orders", "table"),
        ({"table": "db.orders", "where": "id > 1"}, "table"),
        ("jdbc:postgresql://host/db?table=orders", "jdbc"),
        ({"jdbc": "jdbc:postgresql://host/db", "query": "select 1"}, "jdbc"),
        ({"spark_format": "avro", "path": "x.avro"}, "spark"),
        pytest.param(pa.table({"a": [1]}), "arrow", id="a table"),
        pytest.param(lambda: pa.table({"a": [1]}), "arrow", id="a function"),
    ],
)
def test_a_source_may_be_text_or_a_mapping_or_a_stream(written: Any, kind: str) -> None:
    assert SourceSpec.parse(written).kind == kind


def test_what_is_said_of_a_database_holds_no_password() -> None:
    source = SourceSpec.parse(
        "jdbc:postgresql://host/db?table=orders&user=me&password=hunter2&sslmode=require"
    )
    assert source.url == "jdbc:postgresql://host/db?sslmode=require"
    assert source.options == {"user": "me", "password": "hunter2"}
    assert "hunter2" not in repr(source)
    assert "hunter2" not in repr(LoadSpec.of(source, "db.t"))


def test_relative_paths_are_those_of_the_folder_that_is_given(tmp_path: Path) -> None:
    spec = LoadSpec.from_mapping(
        "orders", {"source": ["a.csv", "s3://b/c.csv"], "into": "db.t"}, folder=tmp_path
    )
    assert [source.paths for source in spec.sources] == [
        (f"{tmp_path}/a.csv",),
        ("s3://b/c.csv",),
    ]
    assert spec.name == "orders"
    jars = "lib/a.jar, /b.jar,s3://c/d.jar,file:/e.jar"
    source = {"jdbc": "jdbc:mysql://host/db", "table": "t", "options": {"jar": jars}}
    placed = SourceSpec.parse(source, folder=tmp_path).options["jar"]
    assert placed == f"{tmp_path}/lib/a.jar,/b.jar,s3://c/d.jar,file:/e.jar"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "mode is 'upsert'"),
        ({"mode": "apend"}, "did you mean 'append'"),
        ({"engine": "sparc"}, "did you mean 'spark'"),
        ({"key": "id"}, "did you mean 'keys'"),
        ({"keys": ["id"]}, "keys is for mode='merge'"),
        ({"delete_when": "a = 1"}, "delete_when is for mode='merge'"),
        ({"memory": "lots"}, "not a size"),
        ({"transform": ""}, "transform is ''"),
        ({"branch": ""}, "branch is empty"),
        ({"master": "local[2]", "engine": "local"}, "engine is 'local'"),
        ({"checkpoint": "x"}, "incremental=True"),
        ({"incremental": True, "mode": "replace"}, "would delete the rest"),
        ({"incremental": True, "load_id": "a"}, "leave load_id out"),
        ({"quarantine": "db.q"}, "bad_records='quarantine'"),
        ({"schema": {"id": "integr"}}, "'id' is 'integr'"),
    ],
    ids=str,
)
def test_an_option_that_can_not_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message.replace("[", r"\[")):
        LoadSpec.of("a.csv", "db.t", **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "a source is empty"),
        ([], "there is no source"),
        (7, "a source is 7"),
        ({"pth": "x"}, "did you mean 'path'"),
        ({"path": "x", "format": "parqet"}, "did you mean 'parquet'"),
        ({"path": "x", "options": {"delimeter": ";"}}, "did you mean 'delimiter'"),
        ({"path": "x", "format": "orc", "options": {"delimiter": ";"}}, "an option of CSV"),
        ("jdbc:postgresql://host/db", "needs a table or a query"),
    ],
    ids=str,
)
def test_a_source_that_can_not_be_is_refused(source: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        LoadSpec.of(source, "db.t")


def test_a_table_needs_a_namespace() -> None:
    with pytest.raises(InvalidArgumentError, match="names no table"):
        LoadSpec.of("a.csv", "t")


def test_a_load_of_a_file_names_what_is_missing() -> None:
    with pytest.raises(InvalidArgumentError, match="has no 'into'"):
        LoadSpec.from_mapping("a", {"source": "x"})
    with pytest.raises(InvalidArgumentError, match="one of 'source' and 'sources'"):
        LoadSpec.from_mapping("a", {"source": "x", "sources": ["x"], "into": "db.t"})


def test_types_may_be_named_as_arrow_or_iceberg_name_them() -> None:
    spec = LoadSpec.of(
        "a.csv",
        "db.t",
        schema={"id": "int64", "price": "decimal(10, 2)", "at": "timestamptz", "day": "date"},
    )
    assert spec.schema == pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
        ]
    )
