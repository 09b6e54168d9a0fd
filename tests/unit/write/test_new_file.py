"""A new file: plain data that becomes an entry of a manifest."""

from __future__ import annotations

import pickle

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.write.parquet.parquet_writer import ParquetFileWriter
from tests.support.tables import commit_files
from tests.support.writing import Parts

_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def test_an_entry_has_all_that_the_file_says_after_a_journey(catalog: SqlCatalog) -> None:
    parts = Parts(catalog.create_table("db.t", _SCHEMA))
    writer = parts.file_writer()
    writer.write_row_group([parts.batch({"id": [3, None, 7]})])
    new = pickle.loads(pickle.dumps(writer.close()))
    entry = new.to_data_file()
    assert entry.content == DataFileContent.DATA
    assert (entry.file_path, entry.record_count) == (new.path, 3)
    assert (entry.file_size_in_bytes, entry.spec_id) == (new.bytes, 0)
    assert entry.null_value_counts == {1: 1}
    assert entry.lower_bounds == {1: (3).to_bytes(8, "little")}
    assert entry.upper_bounds == {1: (7).to_bytes(8, "little")}


def test_pyiceberg_finds_the_rows_by_partition(catalog: SqlCatalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = catalog.create_table("db.t", _SCHEMA, partition_spec=spec)
    parts = Parts(table)
    writer = ParquetFileWriter(
        parts.paths.new("id=5", (5,)),
        target=parts.target,
        settings=parts.settings,
        file_schema=parts.file_schema,
        partition=(5,),
    )
    writer.write_row_group([parts.batch({"id": [5, 5]})])
    commit_files(table, [writer.close().to_data_file()])
    assert table.scan("id = 5").to_arrow().num_rows == 2
    assert table.scan("id = 6").to_arrow().num_rows == 0
