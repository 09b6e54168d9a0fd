"""`icestream tables`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestampType

from icestream.cli.options.settings import Settings
from tests.unit.cli.conftest import Run


def test_the_tables_of_all_namespaces_are_listed(orders: Table, catalog: Catalog, run: Run) -> None:
    catalog.create_namespace("empty")
    shown = run("tables")
    assert shown.stdout.splitlines() == ["empty (no tables)", "shop.orders"]
    document = json.loads(run("tables", "--json").stdout)
    assert document == {"catalog": "local", "namespaces": {"empty": [], "shop": ["shop.orders"]}}


def test_the_catalog_in_use_is_said_on_stderr_unless_quiet(
    orders: Table, run: Run, folder: Path
) -> None:
    said = f"icestream: no catalog is configured: using {folder}/icestream_warehouse\n"
    assert run("tables").stderr == said
    assert run("tables", "-q").stderr == ""


def test_a_table_is_shown_with_columns_and_snapshots(orders: Table, run: Run) -> None:
    lines = run("tables", "shop.orders").stdout.splitlines()
    assert "partitioned by     nothing" in lines
    assert any(line.split() == ["2", "price", "double"] for line in lines)
    snapshots = [line.split() for line in lines if " append " in line]
    assert [row[0] for row in snapshots] == [
        str(snapshot.snapshot_id) for snapshot in reversed(orders.refresh().metadata.snapshots)
    ]
    assert snapshots[0][4:] == ["600", "0", "1,800", "3"]


def test_a_table_as_json_has_its_schema_spec_and_snapshots(catalog: Catalog, run: Run) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True, doc="number"),
        NestedField(2, "at", TimestampType()),
        identifier_field_ids=[1],
    )
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day"))
    catalog.create_table("shop.events", schema, partition_spec=spec)
    shown = json.loads(run("tables", "shop.events", "--json").stdout)
    assert shown["columns"][0] == {
        "id": 1, "name": "id", "type": "long", "required": True, "is_key": True, "doc": "number"
    }  # fmt: skip
    assert shown["partition_by"] == [{"name": "day", "column": "at", "transform": "day"}]
    assert shown["snapshots"] == []
    text = run("tables", "shop.events").stdout
    assert "day(at)" in text
    assert "required key" in text
    assert "no snapshots" in text


def test_a_command_that_may_create_tables_makes_the_catalog_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Settings().open_catalog(make=True) as catalog:
        assert catalog.name == "local"
    assert f"configured: using {folder}/icestream_warehouse" in capsys.readouterr().err
    with Settings(quiet=True).open_catalog(make=True):
        assert capsys.readouterr().err == ""


def test_without_a_catalog_the_message_says_how_to_set_one_up(folder: Path, run: Run) -> None:
    shown = run("tables")
    assert shown.exit_code == 8
    assert shown.stdout == ""
    assert "in .pyiceberg.yaml or with PYICEBERG_CATALOG__DEFAULT__URI" in shown.stderr
    assert list(folder.iterdir()) == []
