"""The paths of data files, in the layout that the table's properties describe."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from pyiceberg.partitioning import PartitionKey
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from icestream.errors import InvalidArgumentError
from icestream.write.target import WriteTarget


class DataPaths:
    """Gives every file of a write its path. Safe for several threads.

    Names are `{task}-{attempt}-{write id}-{number}.parquet`: the id shows all files of a write, and
    no two workers or attempts share a name. PyIceberg's `LocationProvider` chooses the folder:
    plain, object-store layout, or the table's own provider.
    """

    def __init__(self, target: WriteTarget) -> None:
        self._target = target
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        try:
            self._provider = load_location_provider(target.metadata.location, target.properties)
        except (ValueError, AttributeError, TypeError) as error:
            raise InvalidArgumentError(
                f"the location provider of {target.table} can't be created: {error}"
            ) from error

    def new(self, partition_path: str | None = None, partition: tuple[Any, ...] = ()) -> str:
        """A path that no other file has.

        Args:
            partition_path: Such as `day=2024-01-01/country=de`; None for an unpartitioned table.
            partition: The partition's values, for location providers that use them.
        """
        with self._lock:
            name = self._next_name(".parquet")
            if partition_path is None:
                return self._provider.new_data_location(name)
            key = _KnownPartition(self._target, partition_path, partition)
            return self._provider.new_data_location(name, key)

    def new_delete(self) -> str:
        """A path for a delete file, always in the table's data folder."""
        with self._lock:
            return self._provider.new_data_location(self._next_name("-deletes.parquet"))

    def _next_name(self, ending: str) -> str:
        target, number = self._target, next(self._numbers)
        return f"{target.task:05d}-{target.attempt}-{target.write_id}-{number:05d}{ending}"


class _KnownPartition(PartitionKey):
    """A partition key whose path is known already."""

    def __init__(self, target: WriteTarget, path: str, values: tuple[Any, ...]) -> None:
        super().__init__([], target.spec, target.schema)
        vars(self)["partition"] = Record(*values)  # `cached_property` keeps its value there.
        vars(self)["_path"] = path

    def to_path(self) -> str:
        """The Hive-style path."""
        return str(vars(self)["_path"])
