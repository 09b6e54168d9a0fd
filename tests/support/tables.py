"""Tables and data files for tests: one place to import them all from."""

from tests.support.all_types import all_types_rows, all_types_schema
from tests.support.catalogs import make_catalog
from tests.support.commits import append_arrow, commit_files, data_file_paths, data_files
from tests.support.data_files import (
    add_avro_data_file,
    add_orc_file,
    add_parquet_file,
    set_name_mapping,
    write_avro_file,
    write_orc_file,
    write_parquet_file,
)
from tests.support.defaults import v3_table_with_defaults
from tests.support.evolution import EVOLUTIONS, EvolvedTable
from tests.support.partitions import PARTITIONINGS, PartitionedTable
from tests.support.v3_tables import create_v3_table, upgrade_to_v3, v3_schema_updates

__all__ = [
    "EVOLUTIONS",
    "PARTITIONINGS",
    "EvolvedTable",
    "PartitionedTable",
    "add_avro_data_file",
    "add_orc_file",
    "add_parquet_file",
    "all_types_rows",
    "all_types_schema",
    "append_arrow",
    "commit_files",
    "create_v3_table",
    "data_file_paths",
    "data_files",
    "make_catalog",
    "set_name_mapping",
    "upgrade_to_v3",
    "v3_schema_updates",
    "v3_table_with_defaults",
    "write_avro_file",
    "write_orc_file",
    "write_parquet_file",
]
