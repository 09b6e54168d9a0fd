"""Files are ruled out by partition and by statistics, and never one that holds a wanted row."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.expressions.parser import parse
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, UUIDType

from icestream.read.plan.file_predicate import (
    Match,
    PartitionTest,
    all_rows_match,
    file_test,
    has_uuid_partition,
)
from icestream.read.request import request
from tests.support.tables import add_parquet_file

_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "color", StringType()),
    NestedField(3, "key", UUIDType()),
)
_BY_COLOR = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "color"))
_BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))
_BY_KEY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "key"))


@pytest.mark.parametrize(
    ("where", "color", "match"),
    [
        ("color = 'red'", "red", Match.ALL),
        ("color = 'red'", "blue", Match.NONE),
        ("color != 'red'", "blue", Match.ALL),
        ("color = 'red' and id > 3", "red", Match.SOME),
        ("color = 'red' or id > 3", "red", Match.ALL),
        ("color = 'red' or id > 3", "blue", Match.SOME),
        ("id > 3", "red", Match.SOME),
        ("color = 'red'", None, Match.NONE),
        ("color is null", None, Match.SOME),  # PyIceberg's residuals of nulls are not reliable.
    ],
)
def test_a_partition_matches_as_its_value_says(where: str, color: Any, match: Match) -> None:
    test = PartitionTest(_SCHEMA, _BY_COLOR, parse(where), case_sensitive=True)
    assert test.partition(Record(color)) is match


def test_without_a_filter_all_rows_of_every_partition_match() -> None:
    test = PartitionTest(_SCHEMA, _BY_COLOR, AlwaysTrue(), case_sensitive=True)
    assert test.partition(Record("red")) is Match.ALL


def test_a_bucket_rules_out_but_never_confirms() -> None:
    test = PartitionTest(_SCHEMA, _BY_BUCKET, EqualTo("id", 5), case_sensitive=True)
    matches = [test.partition(Record(bucket)) for bucket in range(4)]
    assert sorted(match.name for match in matches) == ["NONE", "NONE", "NONE", "SOME"]


def test_a_uuid_partition_rules_nothing_out() -> None:
    assert has_uuid_partition(_BY_KEY, _SCHEMA)
    assert not has_uuid_partition(_BY_COLOR, _SCHEMA)
    where = EqualTo("key", uuid.uuid4())
    test = PartitionTest(_SCHEMA, _BY_KEY, where, case_sensitive=True)
    assert test.partition(Record(uuid.uuid4().bytes)) is Match.SOME


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A file of ten ids for each of two colors."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "color", StringType()))
    table = catalog.create_table("db.t", schema, partition_spec=_BY_COLOR)
    for number, color in enumerate(["red", "blue"]):
        ids = list(range(number * 10, number * 10 + 10))
        add_parquet_file(table, pa.table({"id": ids, "color": [color] * 10}))
    return table


@pytest.mark.parametrize(
    ("where", "colors"),
    [
        ("color = 'red'", ["red"]),
        ("id >= 10", ["blue"]),
        ("id >= 9", ["blue", "red"]),
        ("COLOR = 'red' and ID > 9", []),
    ],
)
def test_files_are_ruled_out_by_partition_and_statistics(
    table: Table, where: str, colors: list[str]
) -> None:
    might_match = file_test(table.metadata, parse(where), case_sensitive=False)
    files = [task.file for task in table.scan().plan_files()]
    assert sorted(file.partition[0] for file in files if might_match(file)) == colors


def test_a_residual_alone_does_not_make_all_rows_match(table: Table) -> None:
    wanted = request(table, where="color = 'red'")
    by_color = {task.file.partition[0]: task.file for task in table.scan().plan_files()}
    red, blue = by_color["red"], by_color["blue"]
    assert all_rows_match(wanted, FileScanTask(red, residual=AlwaysTrue()))
    assert not all_rows_match(wanted, FileScanTask(blue, residual=AlwaysTrue()))
    assert not all_rows_match(wanted, FileScanTask(red, residual=EqualTo("color", "red")))
    assert all_rows_match(request(table), FileScanTask(blue, residual=EqualTo("id", 1)))
