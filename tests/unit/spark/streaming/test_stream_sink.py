"""The sink of a stream: its options, and the load ids that it keeps."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
import icestream.spark as ice_spark
from icestream.commit.outcome.load_id import batch_load_id
from icestream.errors import InvalidArgumentError
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.streaming.stream_sink import IcestreamStreamWriter
from tests.support.spark_orders import ORDERS
from tests.support.spark_stream import catalog_options


@pytest.fixture
def copy(catalog: SqlCatalog) -> Table:
    """Where they go."""
    return catalog.create_table("db.copy", ORDERS)


@pytest.mark.parametrize(
    ("options", "complete", "message"),
    [
        ({}, False, 'name the stream, as in .option("stream-id", "orders")'),
        ({"stream_id": " "}, False, "name the stream"),
        ({"stream_id": "s" * 500}, False, "at most 500"),
        ({"stream_id": "copy", "load_id": "monday"}, False, "load-id is for one load"),
        ({"stream_id": "copy"}, True, "merge_batches"),
        ({"stream_id": "copy", "no_such": "1"}, False, "no option 'no-such'"),
    ],
)
def test_options_that_make_no_sense_are_named(
    catalog: SqlCatalog, copy: Table, options: dict[str, str], complete: bool, message: str
) -> None:
    given = {**catalog_options(catalog, **options), "path": "db.copy", "checkpointLocation": "c"}
    with pytest.raises(InvalidArgumentError) as caught:
        IcestreamStreamWriter(given, None, complete, SessionDefaults())
    assert message in str(caught.value)
    with pytest.raises(InvalidArgumentError, match="name the stream"):
        ice_spark.merge_batches("db.copy", on="id", stream_id="")


def test_a_stream_keeps_few_load_ids_and_none_of_others_go(copy: Table) -> None:
    row = pa.table({"id": [1], "region": ["r"], "price": [1.0]})
    for load_id in ("monday", *(batch_load_id("other:1", n) for n in range(2))):
        ice.append(copy, row, load_id=load_id)
    for number in range(15):
        ice.append(copy, row, load_id=batch_load_id("orders", number))
    kept = {key for key in copy.refresh().properties if key.startswith("icestream.load.main:")}
    loads = {key.removeprefix("icestream.load.main:") for key in kept}
    assert loads == {
        "monday",
        *(batch_load_id("other:1", number) for number in range(2)),
        *(batch_load_id("orders", number) for number in range(5, 15)),
    }
