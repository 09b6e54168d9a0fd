"""The table that a load writes to."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.request.load_spec import LoadSpec

_ROWS = pa.table({"id": [1]})


def _spec(catalog: Catalog, **options: Any) -> LoadSpec:
    return LoadSpec.of("a.parquet", "db.t", catalog=catalog, engine="local", **options)


def test_a_table_that_does_not_exist_is_found_once_another_load_has_created_it(
    catalog: Catalog,
) -> None:
    with LoadTarget.open(_spec(catalog)) as target:
        assert (target.table, target.table_uuid) == (None, None)
        assert target.refreshed() is target
        table = catalog.create_table("db.t", _ROWS.schema)
        assert target.refreshed().table_uuid == str(table.metadata.table_uuid)
    assert catalog.table_exists("db.t")  # The caller's catalog stays open.


def test_a_missing_table_that_may_not_be_created_is_an_error(catalog: Catalog) -> None:
    with (
        pytest.raises(ice.CatalogError, match=r"no table 'db\.t'"),
        LoadTarget.open(_spec(catalog, create=False)),
    ):
        pytest.fail("opened")


def test_a_committed_load_is_found_on_its_branch_only(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", _ROWS.schema)
    report = ice.append(table, _ROWS, load_id="monday")
    with LoadTarget.open(_spec(catalog)) as target:
        committed = target.committed(_spec(catalog), "monday")
        assert committed is not None
        assert committed.snapshot_id == report.snapshot_id
        assert target.committed(_spec(catalog), "tuesday") is None
        assert target.committed(_spec(catalog, branch="other"), "monday") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "merge"}, "it has no identifier fields: give keys="),
        ({"branch": "audit"}, "it has no branch 'audit': leave branch out"),
    ],
)
def test_options_that_a_new_table_can_not_have_are_refused(
    catalog: Catalog, options: dict[str, Any], message: str
) -> None:
    target = LoadTarget(catalog, "db.t", None)
    with pytest.raises(ice.InvalidArgumentError, match=message):
        target.new_table(_spec(catalog, **options), _ROWS.schema)


def test_a_new_table_gets_its_namespace_and_needs_columns(catalog: Catalog) -> None:
    target = LoadTarget(catalog, "fresh.t", None)
    with pytest.raises(ice.SchemaMismatchError, match="the sources have no columns"):
        target.new_table(_spec(catalog), None)
    assert not catalog.namespace_exists("fresh")
    assert target.new_table(_spec(catalog), _ROWS.schema).name == "fresh.t"
    assert catalog.namespace_exists("fresh")
