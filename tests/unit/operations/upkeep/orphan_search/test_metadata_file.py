"""Metadata files that are found in storage: damaged ones, and ones that are too long to read."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.orphan_search.metadata_file import read_metadata_file
from tests.support.stored import folder_of

_MB = 1 << 20
_UUID = str(uuid.uuid4())
_FACTS = {"table-uuid": _UUID, "location": "s3://bucket/db/t"}
_TEXT = json.dumps(_FACTS).encode()


def _stored(folder: Path, content: bytes) -> str:
    path = folder / "00001-x.metadata.json"
    path.write_bytes(content)
    return str(path)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    ice.append(table, pa.table({"id": pa.array([1], pa.int64())}))
    return table


@pytest.mark.parametrize(
    "content",
    [
        _TEXT,
        gzip.compress(_TEXT),
        gzip.compress(_TEXT[:20]) + gzip.compress(_TEXT[20:]),
        gzip.compress(_TEXT) + b"\0" * 100,
    ],
    ids=["plain", "compressed", "in two members", "padded"],
)
def test_metadata_is_read_compressed_or_not(tmp_path: Path, content: bytes) -> None:
    budget = MemoryBudget("1MB")
    read = read_metadata_file(PyArrowFileIO(), _stored(tmp_path, content), budget)
    assert (read.table_uuid, read.location) == (_UUID, "s3://bucket/db/t")
    assert budget.held_bytes == 0


_DAMAGED = gzip.compress(_TEXT)[:12] + b"\xff\xff\xff\xff" + gzip.compress(_TEXT)[16:]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value"),
        (_TEXT[:-1], "Expecting"),
        (b'{"location": "s3://bucket/db/t"}', "not a table's metadata: KeyError"),
        (b"[" * 200_000, "not a table's metadata: RecursionError"),
        (b"\x1f\x8b", "it is truncated"),
        (gzip.compress(_TEXT)[:-12], "it is truncated"),
        (b"\x1f\x8bnot compressed at all", "it can't be decompressed"),
        (gzip.compress(_TEXT)[:-8] + bytes(8), "it can't be decompressed: CRC"),
        (gzip.compress(_TEXT) + b"more", "it can't be decompressed"),
        (_DAMAGED, "it can't be decompressed"),
    ],
    ids=[
        "empty",
        "truncated",
        "without an id",
        "nested too deep",
        "two bytes",
        "compressed and truncated",
        "not gzip",
        "wrong checksum",
        "followed by something",
        "damaged",
    ],
)
def test_what_is_not_a_tables_metadata_is_a_value_error(
    tmp_path: Path, content: bytes, message: str
) -> None:
    budget = MemoryBudget("1MB")
    with pytest.raises(ValueError, match=message):
        read_metadata_file(PyArrowFileIO(), _stored(tmp_path, content), budget)
    assert budget.held_bytes == 0


def test_a_small_file_that_is_long_once_decompressed_is_refused_before_it_takes_memory(
    table: Table,
) -> None:
    bomb = gzip.compress(b" " * (256 * _MB), compresslevel=1)
    assert len(bomb) < 2 * _MB
    path = folder_of(table) / "metadata" / "00009-x.gz.metadata.json"
    path.write_bytes(bomb)
    del bomb
    tracemalloc.start()
    try:
        with pytest.raises(ice.MemoryBudgetError, match=r"00009-x\.gz.*raise memory") as caught:
            ice.orphans(table, older_than=0, delete=True, memory="64MB")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * _MB
    assert caught.value.needed_bytes > caught.value.limit_bytes == 64_000_000
    assert path.exists()


def test_a_long_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    class NeverOpened(PyArrowFileIO):
        def new_input(self, location: str) -> InputFile:
            found = super().new_input(location)
            found.open = None  # type: ignore[method-assign,assignment]
            return found

    path = tmp_path / "v1.metadata.json"
    with path.open("wb") as file:
        file.truncate(300_000)
    io: FileIO = NeverOpened()
    with pytest.raises(ice.MemoryBudgetError, match=r"v1\.metadata\.json.*raise memory") as caught:
        read_metadata_file(io, str(path), MemoryBudget(1_000_000))
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (1_200_000, 1_000_000)


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "compressed"])
def test_a_file_that_just_fits_is_read(tmp_path: Path, compress: type[bytes]) -> None:
    text = _TEXT + b" " * (250_000 - len(_TEXT))
    path = _stored(tmp_path, compress(text))
    assert read_metadata_file(PyArrowFileIO(), path, MemoryBudget(1_000_000)).table_uuid == _UUID
    path = _stored(tmp_path, compress(text + b" "))
    with pytest.raises(ice.MemoryBudgetError):
        read_metadata_file(PyArrowFileIO(), path, MemoryBudget(1_000_000))


def test_metadata_that_the_store_does_not_give_is_not_taken_for_what_a_killed_commit_left(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder_of(table) / "metadata" / "00009-x.metadata.json"
    path.write_bytes(_TEXT)
    real = PyArrowFileIO.new_input

    def failing(self: PyArrowFileIO, location: str) -> InputFile:
        if location.endswith(path.name):
            raise OSError("the store does not answer")
        return real(self, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", failing)
    with pytest.raises(ice.CatalogError, match=r"00009-x.*the store does not answer"):
        ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert path.exists()
