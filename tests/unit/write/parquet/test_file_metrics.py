"""The metrics of a data file equal those that PyIceberg computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from icestream.write.schema.conform import Conformer
from tests.support.tables import all_types_rows, all_types_schema, make_catalog
from tests.support.writing import Parts

_SCHEMA = Schema(NestedField(1, "n", LongType()), NestedField(2, "text", StringType()))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def parts(catalog: SqlCatalog) -> Parts:
    return Parts(catalog.create_table("db.t", _SCHEMA))


# Row groups and encodings are ours, so their sizes and offsets differ.
_OURS = {"column_sizes", "split_offsets"}


def _pyiceberg_metrics(table: Table, rows: pa.Table) -> dict[str, Any]:
    table.append(rows)
    (task,) = table.scan().plan_files()
    return {
        "value_counts": task.file.value_counts,
        "null_value_counts": task.file.null_value_counts,
        "nan_value_counts": task.file.nan_value_counts,
        "lower_bounds": task.file.lower_bounds,
        "upper_bounds": task.file.upper_bounds,
        "record_count": task.file.record_count,
    }


@pytest.mark.parametrize("group_rows", [10_000, 400])
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.metrics.default": "full"},
        {"write.metadata.metrics.default": "counts"},
        {
            "write.metadata.metrics.default": "none",
            "write.metadata.metrics.column.string": "truncate(2)",
            "write.metadata.metrics.column.long": "full",
        },
    ],
    ids=["truncated", "full", "counts", "by column"],
)
def test_metrics_equal_those_of_pyiceberg(
    catalog: SqlCatalog, properties: dict[str, str], group_rows: int
) -> None:
    # PyIceberg's row groups are cut like ours: bounds of a column are made group by group.
    props = {**properties, "write.parquet.row-group-limit": str(group_rows)}
    table = catalog.create_table("db.all", all_types_schema(), properties=props)
    parts, rows = Parts(table), all_types_rows(1000)
    conformer = Conformer(rows.schema, table.schema(), mode="freeze", table="db.all")
    parts.file_schema = conformer.file_schema
    writer = parts.file_writer()
    for batch in rows.to_batches(max_chunksize=group_rows):
        writer.write_row_group([conformer.convert(batch)])
    new_file = writer.close()
    ours = {k: v for k, v in new_file.metrics.items() if k not in _OURS}
    assert {**ours, "record_count": new_file.rows} == _pyiceberg_metrics(table, rows)
