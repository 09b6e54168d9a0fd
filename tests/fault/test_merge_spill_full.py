"""The disk for temporary files fills up in a merge: that is told, and the table is as it was."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import icestream as ice
from tests.fault.filling_disk import FillingDisk
from tests.support.leaks import assert_no_leaks
from tests.support.loads import head_of, listing, make_table
from tests.support.merges import MODES
from tests.support.tables import make_catalog

_MEMORY = "16MB"
_COUNT = 120_000
_BATCH = 10_000

# What a merge spills, in this order, known by its columns.
_SPILLED: dict[str, Callable[[pa.Schema], bool]] = {
    "stream": lambda columns: "text" in columns.names and "icestream pos" not in columns.names,
    "keys": lambda columns: "first" in columns.names,
    "matches": lambda columns: "icestream pos" in columns.names,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Half of the rows to be merged, as they were before."""
    catalog = make_catalog(tmp_path_factory.mktemp("full"))
    table = make_table(catalog, write__target_file_size_bytes="200000")
    ice.append(table, _rows("old", range(0, _COUNT, 2)))
    yield table
    catalog.close()


@pytest.fixture
def spill_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    folder = tmp_path / "spill"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("room_bytes", [0, 500_000], ids=["at once", "midway"])
@pytest.mark.parametrize("filled_by", _SPILLED)
def test_a_spill_disk_that_fills_up_is_told_and_nothing_is_left(
    table: Table, spill_folder: Path, filled_by: str, room_bytes: int, mode: str
) -> None:
    before, head = listing(table), head_of(table).snapshot_id
    written: set[str] = set()
    disk = FillingDisk(
        _SPILLED[filled_by], room_bytes, lambda: written.update(listing(table) - before)
    )
    with assert_no_leaks(), disk.used(), pytest.raises(ice.WriteError) as caught:
        _merge(table, mode)
    assert disk.is_full
    assert disk.taken_bytes == room_bytes
    message = f"spilled to {spill_folder}: No space left on device: free some space"
    assert message in str(caught.value)
    assert "TMPDIR" in str(caught.value)
    assert caught.value.path == str(spill_folder)
    # The error is still there, and with it all that its traceback refers to.
    assert (disk.open_files, list(spill_folder.iterdir())) == (0, [])
    # New rows are written while matches are looked for: those files must go again.
    assert any(name.endswith(".parquet") for name in written) == (filled_by == "matches")
    assert listing(table) == before
    assert head_of(table).snapshot_id == head
    rows = table.scan(selected_fields=("id", "text")).to_arrow().sort_by("id")
    assert rows.to_pydict() == _rows("old", range(0, _COUNT, 2)).to_pydict()


def _rows(version: str, keys: range) -> pa.Table:
    texts = [f"{version} {key}, which is some text to fill the memory" for key in keys]
    return pa.table({"id": pa.array(keys, pa.int64()), "text": pa.array(texts, pa.string())})


def _merge(table: Table, mode: str) -> ice.MergeReport:
    batches = iter(_rows("new", range(_COUNT)).to_batches(max_chunksize=_BATCH))
    return ice.merge(table, batches, on="id", write_mode=mode, memory=_MEMORY)
