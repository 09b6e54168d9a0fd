"""Sources of a load, as text, mappings and streams. No message about them shows a secret."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.source_spec import SourceSpec, parse_sources


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


@pytest.mark.parametrize(
    "wrong",
    [{"tabel": "a"}, {"table": 5}, {"table": "a", "query": "b"}, {"options": "hunter2"}, {}],
    ids=str,
)
def test_an_error_about_a_database_shows_no_password(wrong: dict[str, Any]) -> None:
    source = {"jdbc": "jdbc:postgresql://me:hunter2@host/db", "password": "hunter2", **wrong}
    with pytest.raises(InvalidArgumentError) as caught:
        LoadSpec.of(source, "db.t")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("source", ["-", {"path": "-", "format": "csv"}], ids=str)
def test_standard_input_is_refused_with_what_to_do(source: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="standard input is not read: save the rows to"):
        SourceSpec.parse(source)


def test_relative_paths_are_those_of_the_folder_that_is_given(tmp_path: Path) -> None:
    spec = LoadSpec.of(["a.csv", "s3://b/c.csv"], "db.t", name="orders", folder=tmp_path)
    assert [source.paths for source in spec.sources] == [
        (f"{tmp_path}/a.csv",),
        ("s3://b/c.csv",),
    ]
    assert spec.name == "orders"
    jars = "lib/a.jar, /b.jar,s3://c/d.jar,file:/e.jar"
    source = {"jdbc": "jdbc:mysql://host/db", "table": "t", "options": {"jar": jars}}
    placed = SourceSpec.parse(source, folder=tmp_path).options["jar"]
    assert placed == f"{tmp_path}/lib/a.jar,/b.jar,s3://c/d.jar,file:/e.jar"


def test_a_list_of_arrow_batches_is_one_source_and_a_list_of_paths_several() -> None:
    batch = pa.record_batch({"a": [1]})
    assert [source.kind for source in parse_sources([batch, batch])] == ["arrow"]
    assert [source.paths for source in parse_sources(["a.csv", "b.csv"])] == [
        ("a.csv",),
        ("b.csv",),
    ]


@pytest.mark.parametrize("source", [None, 5, b"a.csv", "", " ", []], ids=repr)
def test_a_value_that_is_not_a_source_is_refused_with_an_example(source: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"data/\*\.parquet"):
        parse_sources(source)


def test_only_files_and_tables_can_be_incremental() -> None:
    sources = parse_sources(["a.csv", "table:db.t", "jdbc:postgresql://host/db?table=orders"])
    assert [source.can_be_incremental for source in sources] == [True, True, False]
