"""Functions and SQL transform the rows of a load in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from icestream.errors import InvalidArgumentError, SourceError
from tests.support.load_cases import Load, orders


def test_a_function_transforms_a_stream(load: Load, catalog: Catalog) -> None:
    def cheap(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield batch.filter(pa.compute.field("price") < 1)

    report = load(orders(0, 10), "db.t", transform=cheap)
    assert (report.rows_read, report.rows_inserted) == (10, 2)


def test_an_error_of_a_source_comes_through_sql_as_it_is(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n" + "1\n" * 600_000 + "x\n")
    with pytest.raises(SourceError, match="line 600002"):
        load(tmp_path / "a.csv", "db.t", transform="SELECT id + 1 AS id FROM source")


def test_sql_that_is_wrong_is_the_callers_mistake(load: Load) -> None:
    with pytest.raises(InvalidArgumentError, match="the transform failed"):
        load(orders(0, 5), "db.t", transform="SELECT nothing FROM source")
