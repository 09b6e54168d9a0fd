"""Tasks that list folders and delete files: every name on a disk gets to the driver and back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.operations.upkeep.folder import Folder
from icestream.spark.tasks import storage_tasks
from icestream.spark.tasks.storage_tasks import SparkStorage


class _Rows:
    """The rows of tasks that run in this process; binary values are as Spark returns them."""

    def __init__(self, spark: Any, shares: list[bytes], work: Any, schema: str) -> None:
        batches = [batch for n, share in enumerate(shares) for batch in work(n, share)]
        self._rows = [
            tuple(bytearray(v) if isinstance(v, bytes) else v for v in row.values())
            for batch in batches
            for row in batch.to_pylist()
        ]

    def persist(self) -> _Rows:
        return self

    def unpersist(self) -> None:
        pass

    def count(self) -> int:
        return len(self._rows)

    def collect(self) -> list[Any]:
        return self._rows

    toLocalIterator = collect  # noqa: N815  # Spark's name


def test_a_name_that_is_not_valid_utf8_is_listed_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_tasks, "map_shares", _Rows)
    monkeypatch.setattr(storage_tasks, "_FEW_FILES", 0)
    (tmp_path / "data").mkdir()
    names = [b"plain.parquet", "b\u00fcro.parquet".encode(), b"lost-\xff.parquet"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path / "data") + b"/" + name)).write_bytes(b"x")
    storage = SparkStorage.__new__(SparkStorage)
    storage._spark, storage._io, storage._tasks = None, PyArrowFileIO(), 1  # type: ignore[assignment]
    storage._is_here = True
    folder = Folder(storage._io, str(tmp_path))
    files = list(storage._listed(folder, ["data"]))
    assert sorted(os.fsencode(file.name) for file in files) == sorted(names)
    kept = next(file for file in files if b"\xff" in os.fsencode(file.name))
    os.utime(os.fsencode(tmp_path / "data") + b"/lost-\xff.parquet", (1, 1))
    assert storage.delete(files) == [kept], "it was changed after the listing"
    assert os.listdir(os.fsencode(tmp_path / "data")) == [b"lost-\xff.parquet"]  # noqa: PTH208
