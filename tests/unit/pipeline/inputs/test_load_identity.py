"""The identity of a load: what makes it another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.pipeline.inputs.load_identity import LoadIdentity, name_load
from icestream.pipeline.inputs.load_input import find_inputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.request.load_spec import LoadSpec


@pytest.fixture
def path(tmp_path: Path) -> str:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    return str(tmp_path / "a.parquet")


def _identity(catalog: Catalog, source: Any, **options: Any) -> LoadIdentity:
    spec = LoadSpec.of(source, "db.t", catalog=catalog, engine="local", **options)
    return LoadIdentity.of(spec, find_inputs(spec, LoadTarget(catalog, "db.t", None)))


def test_the_same_files_and_options_are_the_same_load(catalog: Catalog, path: str) -> None:
    first = _identity(catalog, path)
    assert first == _identity(catalog, path, memory="64MB", name="other")
    assert first.load_id == f"inputs:{first.definition}:{first.inputs}"


def test_a_changed_file_has_other_inputs_and_a_changed_option_another_definition(
    catalog: Catalog, path: str
) -> None:
    first = _identity(catalog, path)
    evolving = _identity(catalog, path, schema_mode="evolve")
    assert evolving.inputs == first.inputs
    assert evolving.definition != first.definition
    os.utime(path, ns=(1, 1))
    touched = _identity(catalog, path)
    assert touched.definition == first.definition
    assert touched.inputs != first.inputs


def test_other_rules_are_another_load(catalog: Catalog, path: str) -> None:
    rules: list[dict[str, Any]] = [
        {},
        {"select": "id"},
        {"select": [{"name": "id", "type": "string"}]},
        {"select": [{"name": "key", "from": "id"}]},
        {"select": ["id", {"name": "c", "value": 1}]},
        {"select": ["id", {"name": "c", "value": "1"}]},
        {"where": "id > 0"},
        {"where": "id > 1"},
        {"where": "id > 1", "select": "id"},
    ]
    assert len({_identity(catalog, path, **each).definition for each in rules}) == len(rules)


def test_a_load_without_rules_keeps_the_id_of_earlier_versions(catalog: Catalog, path: str) -> None:
    assert _identity(catalog, path).definition == "9e4f05ce538d9230"


def test_only_appends_of_inputs_that_can_be_compared_have_a_load_id(
    catalog: Catalog, path: str
) -> None:
    assert _identity(catalog, path, mode="replace").load_id is None
    assert _identity(catalog, pa.table({"id": [1]})).load_id is None
    assert _identity(catalog, path, transform=lambda rows: rows).load_id is None


def test_a_table_is_known_by_its_snapshot(catalog: Catalog) -> None:
    rows = pa.table({"id": [1]})
    table = catalog.create_table("db.source", rows.schema)
    ids = set()
    for _ in range(2):
        ice.append(table, rows)
        ids.add(_identity(catalog, "table:db.source").load_id)
    assert len(ids) == 2


def test_again_gives_no_id_to_inputs_that_were_loaded(catalog: Catalog, path: str) -> None:
    identity = _identity(catalog, path)
    name = name_load(LoadSpec.of(path, "db.t", again=True))
    assert name(identity, lambda load_id: False) == identity.load_id
    assert name(identity, lambda load_id: True) is None
