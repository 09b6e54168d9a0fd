"""A flipped bit in a file of ours gives the right rows or an error that names the file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

import icestream as ice
from tests.support.delete_files import commit_deletion_vectors
from tests.support.tables import data_file_paths, make_catalog, upgrade_to_v3

_ROWS = 3_000
_FLIPS = 60


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


def _rows() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(_ROWS), pa.int64()),
            "name": [f"name-{n % 40}" for n in range(_ROWS)],
            "note": [None if n % 5 == 0 else f"{n * 7919 % 10007}" for n in range(_ROWS)],
            "price": [n / 8 for n in range(_ROWS)],
        }
    )


def _table(catalog: SqlCatalog) -> Table:
    catalog.create_namespace_if_not_exists("db")
    rows = _rows()
    properties = {
        "format-version": "2",
        "write.parquet.row-group-limit": "1000",
        "write.parquet.page-row-limit": "500",
        "write.parquet.compression-codec": "uncompressed",  # A codec finds much by itself.
    }
    table = catalog.create_table("db.t", rows.schema, properties=properties)
    ice.append(table, rows)
    return table


def _delete_some(table: Table) -> None:
    changed = _rows().filter(pa.array([n % 3 == 0 for n in range(_ROWS)]))
    ice.merge(table, changed, on=["id"], when_matched="delete", write_mode="merge-on-read")


def _read(table: Table, where: str | None) -> list[tuple[object, ...]]:
    rows = pa.Table.from_batches(list(ice.scan(table, where=where)), ice.scan(table).schema)
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def _check(path: Path, read: Callable[[], object], region: range, flips: int = _FLIPS) -> int:
    """Flip bits of a file, one at a time, and read; the number of flips that were errors."""
    whole = path.read_bytes()
    right = read()
    errors = 0
    named: set[str] = set()
    places = random.Random(13)
    for _ in range(flips):
        damaged = bytearray(whole)
        place, bit = places.choice(region), places.randrange(8)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            found = read()
        except ice.ReadError as error:
            named.add(error.path.removeprefix("file://"))
            errors += 1
        else:
            assert found == right, f"byte {place}, bit {bit}"
    path.write_bytes(whole)
    assert read() == right
    assert named <= {str(path)}
    return errors


def _regions(path: Path) -> list[range]:
    """The pages, and the footer with its seal: as often in each, however long it is."""
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little") - 16
    return [range(footer), range(footer, len(content))]


def _local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


@pytest.mark.parametrize("where", [None, "id >= 2500 and price < 370"])
def test_a_flipped_bit_in_a_data_file_never_gives_wrong_rows(
    catalog: SqlCatalog, where: str | None
) -> None:
    table = _table(catalog)
    (path,) = data_file_paths(table)
    for region in _regions(_local(path)):
        errors = _check(_local(path), lambda: _read(table, where), region)
        assert errors > _FLIPS // 4


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["data", "deletes"])
def test_many_flipped_bits_never_give_wrong_rows(catalog: SqlCatalog, kind: str) -> None:
    table = _table(catalog)
    (path,) = data_file_paths(table)
    if kind == "deletes":
        _delete_some(table)
        (path,) = _delete_files(table)
    for region in _regions(_local(path)):
        _check(_local(path), lambda: _read(table, None), region, flips=5_000)


def test_a_flipped_bit_in_a_position_delete_file_never_gives_wrong_rows(
    catalog: SqlCatalog,
) -> None:
    table = _table(catalog)
    _delete_some(table)
    (path,) = _delete_files(table)
    for region in _regions(_local(path)):
        errors = _check(_local(path), lambda: _read(table, None), region)
        assert errors > _FLIPS // 4


def test_a_flipped_bit_in_a_deletion_vector_never_gives_wrong_rows(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    table = upgrade_to_v3(table)
    (data_file,) = data_file_paths(table)
    commit_deletion_vectors(table, {data_file: list(range(0, _ROWS, 3))})
    (path,) = _delete_files(table)
    content = _local(path).read_bytes()
    # Puffin's own footer has no checksum in the format; the number of positions shows damage there.
    errors = _check(_local(path), lambda: _read(table, None), range(4, len(content)))
    assert errors > _FLIPS // 4


def _delete_files(table: Table) -> list[str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.content != DataFileContent.DATA
    ]
