"""Pipeline files: what they say, errors with the line they are on, and the JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import icestream as ice
from icestream.pipeline.request.located_yaml import LocatedYaml
from icestream.pipeline.request.pipeline_file import PipelineFile, pipeline_schema
from tests.docs.documents import DOCUMENTS, REPOSITORY

_BLOCK = re.compile(r"^```yaml\n(.*?)^```|write_text\('''\n(.*?)^'''\)", re.DOTALL | re.MULTILINE)
_LOAD = "loads:\n  a:\n    source: a.csv\n    into: db.a\n"
_SHOP = """
    name: shop
    catalog: ${CATALOG:-local}
    defaults: {engine: local, memory: 64MB, schema_mode: evolve, on_duplicate: last}
    loads:
      orders:
        source: data/orders/*.parquet
        into: shop.orders
        partition_by: [day(bought_at)]
        tests:
          - rows: {min: 1, max: 1000000}
          - not_null: [id, price]
          - accepted_values: {column: country, values: [DE, NO]}
          - sql: SELECT * FROM result WHERE price < 0
            name: no negative prices
      changes:
        sources: [a.csv, "s3://bucket/x/*.csv.gz", {path: b.csv, format: csv}]
        into: shop.orders
        mode: merge
        keys: id
      daily:
        after: orders
        source: {table: shop.orders}
        into: shop.daily
        mode: replace
        engine: spark
"""


def _read(folder: Path, text: str, **options: Any) -> PipelineFile:
    file = folder / "pipeline.yaml"
    file.write_text(dedent(text))
    return PipelineFile.read(file, **options)


def test_a_file_becomes_loads_with_defaults(tmp_path: Path) -> None:
    pipeline = _read(tmp_path, _SHOP)
    assert pipeline.name == "shop"
    orders, changes, daily = pipeline.loads
    assert [load.name for load in pipeline.loads] == ["orders", "changes", "daily"]
    assert orders.spec.into == "shop.orders"
    assert (orders.spec.engine, orders.spec.schema_mode) == ("local", "evolve")
    assert orders.spec.catalog == "local"
    assert orders.spec.partition_by == ("day(bought_at)",)
    assert [test.name for test in orders.tests] == [
        "rows min 1, max 1000000",
        "not_null id, price",
        "accepted_values country",
        "no negative prices",
    ]
    assert (daily.after, daily.spec.engine) == (("orders",), "spark")
    assert (changes.spec.on_duplicate, orders.spec.on_duplicate) == ("last", "error")


def test_relative_paths_are_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    (folder / "pipeline.yaml").write_text(dedent(_SHOP))
    orders, changes, _ = PipelineFile.read("there/pipeline.yaml").loads
    assert orders.spec.sources[0].paths == (f"{folder}/data/orders/*.parquet",)
    paths = [source.paths[0] for source in changes.spec.sources]
    assert paths == [f"{folder}/a.csv", "s3://bucket/x/*.csv.gz", f"{folder}/b.csv"]


def test_norway_is_no_boolean_and_a_date_is_text(tmp_path: Path) -> None:
    text = """
        loads:
          a:
            source: a.csv
            into: db.a
            tests:
              - accepted_values: {column: c, values: [NO, on, 010, 1.5, true, 2026-11-16, 1:30]}
    """
    (load,) = _read(tmp_path, text).loads
    assert load.tests[0].values == ("NO", "on", "10", "1.5", "true", "2026-11-16", "1:30")


def test_variables_come_from_the_environment_and_from_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
        name: ${WHO:-nobody}
        loads:
          a:
            source: ${DAY}/*.parquet
            into: db.a
            transform: SELECT '$${DAY}' AS a, $1 AS b FROM source
            create: ${CREATE}
            tests:
              - rows: {min: "${LEAST:-5}"}
    """
    monkeypatch.setenv("DAY", "monday: [")
    monkeypatch.setenv("CREATE", "true")
    pipeline = _read(tmp_path, text, variables={"CREATE": "false", "WHO": ""})
    (load,) = pipeline.loads
    assert pipeline.name == "nobody"
    assert load.spec.sources[0].paths == (f"{tmp_path}/monday: [/*.parquet",)
    assert load.spec.transform == "SELECT '${DAY}' AS a, $1 AS b FROM source"
    assert load.spec.create is False
    assert load.tests[0].least == 5


def test_a_fingerprint_changes_with_what_is_loaded_and_not_with_tests(tmp_path: Path) -> None:
    text = "loads: {{a: {{source: {source}, into: db.a, tests: [{{unique: {key}}}]}}}}"

    def fingerprint(**values: str) -> str:
        return _read(tmp_path, text.format(**values)).loads[0].fingerprint

    first = fingerprint(source="a.csv", key="id")
    assert fingerprint(source="a.csv", key="other") == first
    assert fingerprint(source="b.csv", key="id") != first


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "give names and values"),
        ("- a", 1, "give names and values"),
        ("name: x", 1, "no 'loads'"),
        ("name: x\nloads: {}", 2, "describe one load"),
        ("name: a/b\nloads: {a: {source: x, into: d.x}}", 1, "name is 'a/b'"),
        ("loadz:\n  a: {}", 1, "did you mean 'loads'"),
        ("loads:\n  a:\n    source: a.csv\n    into: db.a\n    mod: x", 5, "did you mean 'mode'"),
        ("loads:\n  a:\n    source: a.csv\n    into: db.a\n    mode: apend", 5, "mode is 'apend'"),
        ("loads:\n  a:\n    source: a.csv\n    into: db.a\n    load_id: x", 5, "'load_id'"),
        ("loads:\n  a:\n    source: a.csv", 2, "no 'into'"),
        ("loads:\n  a:\n    into: db.a\n", 2, "'sources'"),
        ("loads:\n  a: {into: db.a, source: x, sources: [x]}", 2, "'source' and 'sources'"),
        ("loads:\n  a:\n    into: a\n    source: a.csv", 3, "is not a table name"),
        ("loads:\n  a:\n    into: db.a\n    source: {pth: a.csv}", 4, "did you mean 'path'"),
        ("loads:\n  a:\n    into: d.a\n    source: a\n    create: maybe", 5, "true or false"),
        ("loads:\n  a:\n    into: d.a\n    source: a\n    memory: lots", 5, "not a size"),
        ("loads:\n  a:\n    into: d.a\n    source: a\n    after: [b]", 5, "'b', which is unknown"),
        (
            "loads:\n  a:\n    into: d.a\n    source: a\n    tests:\n      - not_nul: [a]",
            6,
            "not_null",
        ),
        (
            "loads:\n a:\n  into: d.a\n  source: a\n  tests:\n  - unique: a\n  - unique: a",
            7,
            "two",
        ),
        ("loads:\n  a:\n    into: d.a\n    source: ${NOT_SET}", 4, "'NOT_SET' is not set"),
        ("loads:\n  a:\n    into: d.a\n    source: ${a b}", 4, "is not a variable"),
        ("loads:\n  a:\n    into: d.a\n    into: d.b", 4, "'into' is given twice"),
        ("loads:\n  a: [", 2, "this is not valid YAML"),
        ("loads:\n  a: !!python/object:os.system x", 2, "is not supported"),
        ("loads: &x\n  a: *x", 1, "alias"),
        ("catalog:\n  uri: x\nloads: {a: {source: b, into: d.a}}", 1, "catalog is not valid"),
        ("loads:\n  a:\n    into: d.a\n    source: a\n    catalog: [b]", 5, "catalog is not valid"),
        ("defaults:\n  sort_by: [a]\n  into: x\nloads: {a: {source: b, into: d.a}}", 3, "'into'"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    with pytest.raises(ice.InvalidArgumentError) as caught:
        PipelineFile.read(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_a_file_in_another_encoding_names_the_line_and_what_to_do(
    tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes((_LOAD + "    name: Bücher\n").encode(encoding))
    line = 1 if encoding == "utf-16" else 5
    message = rf"p\.yaml:{line}: this is not UTF-8 text: save the file as UTF-8$"
    with pytest.raises(ice.InvalidArgumentError, match=message):
        PipelineFile.read(file)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_line_ends_and_the_mark_of_windows_are_read(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(_LOAD.replace("\n", "\r\n").encode(encoding))
    assert PipelineFile.read(file).loads[0].spec.into == "db.a"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=r"nothing\.yaml can't be read: No such"):
        PipelineFile.read(tmp_path / "nothing.yaml")


def test_a_catalog_of_the_call_takes_the_place_of_all_others(tmp_path: Path) -> None:
    text = "catalog: a\nloads: {x: {source: a.csv, into: db.x, catalog: b}}"
    assert _read(tmp_path, text).loads[0].spec.catalog == "b"
    assert _read(tmp_path, text, catalog="c").loads[0].spec.catalog == "c"


class _Unset(dict[str, str]):
    """Leaves variables as they are written."""

    def get(self, name: str, default: Any = None) -> str:
        return f"${{{name}}}"


def _problems(text: str) -> list[str]:
    document = LocatedYaml.parse(text, "pipeline.yaml", _Unset())
    validator = Draft202012Validator(pipeline_schema())
    return [error.message for error in validator.iter_errors(document.value)]


def _documented() -> Iterator[Any]:
    demo = REPOSITORY / "src/icestream/cli/demo/pipeline.yaml"
    yield pytest.param(demo.read_text(), id="the demo")
    for name in DOCUMENTS:
        for number, match in enumerate(_BLOCK.finditer((REPOSITORY / name).read_text())):
            text = match[1] or match[2]
            if "\nloads:" in text:
                yield pytest.param(text, id=f"{name} {number}")


@pytest.mark.parametrize("text", list(_documented()))
def test_the_demo_and_every_documented_pipeline_conform(text: str) -> None:
    assert _problems(text) == []


def test_the_pipeline_of_the_guide_is_among_the_documented_ones() -> None:
    assert sum("pipeline-file.md" in case.id for case in _documented()) >= 3


def test_the_schema_is_a_json_schema_and_describes_every_key() -> None:
    schema = pipeline_schema()
    Draft202012Validator.check_schema(schema)
    for model in (schema, *schema["$defs"].values()):
        assert model["description"]
        for name, each in model["properties"].items():
            assert each["description"].endswith("."), name


@pytest.mark.parametrize(
    "text",
    [
        _LOAD + "    sources: [a]\n",
        _LOAD.replace("into: db.a", "mode: append"),
        _LOAD + "    mode: apend\n",
        _LOAD + "    mod: append\n",
        _LOAD + "    load_id: a\n",
        _LOAD + "    create: maybe\n",
        _LOAD + "    keys: 5\n",
        _LOAD + "    transform: ''\n",
        _LOAD + "    where: ''\n",
        _LOAD + "    transform: SELECT a FROM source\n    transform_engine: duck\n",
        _LOAD + "    select: 5\n",
        _LOAD + "    select: [{nam: a}]\n",
        _LOAD + "    select: [{from: a}]\n",
        _LOAD + "    select: [{name: a, value: [1]}]\n",
        _LOAD + "    tests: {unique: a}\n",
        _LOAD + "    tests: [{not_nul: a}]\n",
        _LOAD + "    tests: [{rows: {min: -1}}]\n",
        _LOAD + "    tests: [{accepted_values: {column: a}}]\n",
        _LOAD.replace("a.csv", "{path: a, format: exe}"),
        _LOAD.replace("a.csv", "{pth: a}"),
        "defaults: {into: db.a}\n" + _LOAD,
        "name: a/b\n" + _LOAD,
        "loads: {}",
        "name: a",
    ],
)
def test_the_schema_refuses_what_the_file_may_not_say(tmp_path: Path, text: str) -> None:
    assert _problems(text)
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    with pytest.raises(ice.InvalidArgumentError):
        PipelineFile.read(file)


@pytest.mark.parametrize(
    "text",
    [
        "catalog: ${CATALOG:-a}\nname: ${NAME:-a}\n" + _LOAD,
        _LOAD + "    engine: ${ENGINE:-local}\n    create: ${CREATE:-false}\n",
        _LOAD + "    tests: [{rows: {min: '${LEAST:-5}'}}, {unique: a, name: b}]\n",
        _LOAD + "    mode: merge\n    keys: id\n    update_columns: [a, b]\n",
        _LOAD + "    select: id\n    where: a > 1\n",
        _LOAD + "    transform: SELECT a FROM source\n    transform_engine: duckdb\n",
        "defaults: {transform_engine: duckdb}\n" + _LOAD,
        _LOAD + "    select: [id, {name: b, from: c, type: 'decimal(5,2)'}, {name: d, value: 1}]\n",
        _LOAD + "    select: [{name: d, value: true}, {name: e, value: null, type: int}]\n",
        _LOAD + "    memory: 100000000\n    schema: {id: int64}\n    properties: {a: b}\n",
        _LOAD.replace("a.csv", "[a.csv, {table: db.b, columns: a}, {jdbc: 'jdbc:x', query: q}]"),
        _LOAD.replace("a.csv", "{spark_format: avro, path: [a, b], options: {x: 1}}"),
        "defaults: {engine: spark, on_duplicate: last, skip_unchanged: false}\n" + _LOAD,
    ],
)
def test_the_schema_allows_what_the_file_may_say(tmp_path: Path, text: str) -> None:
    assert _problems(text) == []
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    assert PipelineFile.read(file).loads
