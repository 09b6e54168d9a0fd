"""Paths of data files: laid out as PyIceberg lays them out, and never the same twice."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.locations import LocationProvider

from icestream.errors import InvalidArgumentError
from icestream.write.parquet.data_paths import DataPaths
from icestream.write.target import WriteTarget
from tests.support.tables import make_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


def _target(catalog: SqlCatalog, **properties: str) -> WriteTarget:
    named = {name.replace("__", ".").replace("_", "-"): v for name, v in properties.items()}
    table = catalog.create_table("db.t", pa.schema([("n", pa.int64())]), properties=named)
    return WriteTarget.of(table, write_id="w")


class Provider(LocationProvider):
    """A provider of the table's owner that wants to know the partition."""

    def new_data_location(
        self, data_file_name: str, partition_key: PartitionKey | None = None
    ) -> str:
        if partition_key is None:
            return f"own/{data_file_name}"
        values = [partition_key.partition[i] for i in range(len(partition_key.partition))]
        return f"own/{values}/{partition_key.to_path()}/{data_file_name}"


def test_names_carry_the_write_the_task_the_attempt_and_a_number(catalog: SqlCatalog) -> None:
    target = _target(catalog).for_task(7, attempt=2)
    paths = DataPaths(target)
    folder = f"{target.metadata.location}/data"
    assert paths.new() == f"{folder}/00007-2-w-00000.parquet"
    assert paths.new() == f"{folder}/00007-2-w-00001.parquet"


def test_files_of_a_partition_go_to_its_folder(catalog: SqlCatalog) -> None:
    target = _target(catalog)
    path = DataPaths(target).new("day=2024-01-01/c=de", (19723, "de"))
    assert path == f"{target.metadata.location}/data/day=2024-01-01/c=de/00000-0-w-00000.parquet"


def test_the_data_path_of_the_table_is_used(catalog: SqlCatalog) -> None:
    target = _target(catalog, write__data__path="s3://bucket/elsewhere")
    assert DataPaths(target).new() == "s3://bucket/elsewhere/00000-0-w-00000.parquet"


@pytest.mark.parametrize("partitioned_paths", ["true", "false"])
def test_the_object_store_layout_spreads_files(catalog: SqlCatalog, partitioned_paths: str) -> None:
    target = _target(
        catalog,
        write__object_storage__enabled="true",
        write__object_storage__partitioned_paths=partitioned_paths,
    )
    paths = DataPaths(target)
    given = [paths.new("c=de", ("de",)) for _ in range(50)]
    folders = {path.rsplit("/", 1)[0] for path in given}
    assert len(folders) > 40
    assert all(("/c=de/" in path) == (partitioned_paths == "true") for path in given)


def test_a_provider_of_the_table_gets_the_partition(catalog: SqlCatalog) -> None:
    impl = f"{Provider.__module__}.Provider"
    paths = DataPaths(_target(catalog, **{"write.py-location-provider.impl": impl}))
    assert paths.new() == "own/00000-0-w-00000.parquet"
    assert paths.new("c=de", ("de",)) == "own/['de']/c=de/00000-0-w-00001.parquet"


def test_a_provider_that_can_not_be_made_is_an_error_that_names_the_table(
    catalog: SqlCatalog,
) -> None:
    target = _target(catalog)
    gone = {"write.py-location-provider.impl": "no.such.Provider"}
    metadata = target.metadata.model_copy(update={"properties": gone})
    target = replace(target, metadata=metadata)
    with pytest.raises(InvalidArgumentError, match=r"location provider of db\.t"):
        DataPaths(target)


def test_no_two_threads_get_the_same_path(catalog: SqlCatalog) -> None:
    paths = DataPaths(_target(catalog))
    with ThreadPoolExecutor(8) as threads:
        given = list(threads.map(lambda _: paths.new(), range(5_000)))
    assert len(set(given)) == 5_000
