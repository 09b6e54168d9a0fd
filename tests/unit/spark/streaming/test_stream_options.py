"""Options of a stream."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from icestream.errors import InvalidArgumentError, UnknownColumnError, UnsupportedFeatureError
from icestream.spark.data_source import IcestreamSource
from icestream.spark.streaming import stream_options
from tests.support.spark_stream import Stream, catalog_options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "yesterday"}, "'start' is 'yesterday': give earliest or latest"),
        ({"start_snapshot_id": "12"}, "branch 'main' of db.orders has no such snapshot"),
        ({"start": "latest", "start_timestamp": "0"}, "give one of start, start-timestamp"),
        ({"push_filters": "true"}, "'push-filters' is for spark.read"),
        ({"skip_delete_snapshots": "yes"}, "'skip-delete-snapshots' is 'yes'"),
        ({"no_such": "1"}, "no option 'no-such'"),
        ({"columns": "nothing"}, "nothing"),
    ],
)
def test_options_that_make_no_sense_are_named(
    catalog: SqlCatalog, table: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises((InvalidArgumentError, UnknownColumnError), match=message):
        Stream(catalog, **options).next()


def test_options_of_streams_are_refused_in_batch_reads(catalog: SqlCatalog, table: Table) -> None:
    source = IcestreamSource({**catalog_options(catalog, start="latest"), "path": "db.orders"})
    schema = source.schema()
    with pytest.raises(InvalidArgumentError, match="no option 'start'"):
        source.reader(schema)


def test_limits_are_refused_where_spark_has_none(
    catalog: SqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_options, "HAS_ADMISSION_CONTROL", False)
    with pytest.raises(UnsupportedFeatureError, match=r"needs PySpark 4\.2"):
        Stream(catalog, max_files_per_micro_batch="1")
