"""ORC files: how much of a file is read, how often, and what a reader holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.read.decode.orc import OrcReader, orc_fragment
from tests.fault.watched_io import watch
from tests.support.delete_files import commit_position_deletes
from tests.support.tables import add_orc_file

_ROWS = 200_000


def _rows(count: int) -> pa.Table:
    noise = np.random.default_rng(3).integers(0, 2**62, count)
    return pa.table({"id": pa.array(range(count), pa.int64()), "text": pa.array(noise.astype(str))})


@pytest.mark.parametrize(
    ("limit", "share"), [(10, 0.3), (None, 1.3)], ids=["the first rows", "all rows"]
)
def test_no_more_of_a_file_is_read_than_its_rows_need(
    catalog: Catalog, limit: int | None, share: float
) -> None:
    rows = _rows(_ROWS)
    table = catalog.create_table("db.t", rows.schema)
    add_orc_file(table, rows, stripe_rows=_ROWS // 20)
    (split,) = ice.scan(table).splits()
    read: Counter[str] = Counter()
    watch(table).on_read = lambda path, offset, length: read.update({path: length})
    found = list(ice.scan(table, limit=limit, memory="64MB"))
    assert sum(batch.num_rows for batch in found) == (limit or _ROWS)
    assert read[split.path] < share * split.bytes


def test_a_scanner_allocates_no_more_rows_than_the_file_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "few.orc", _rows(1_000)
    orc.write_table(rows, path)
    batch_rows: list[int] = []

    def recorded(handle: pa.NativeFile) -> Any:
        def scanner(**options: Any) -> ds.Scanner:
            batch_rows.append(options["batch_size"])
            return fragment.scanner(**options)

        fragment = orc_fragment(handle)
        return SimpleNamespace(scanner=scanner)

    monkeypatch.setattr("icestream.read.decode.orc.orc_fragment", recorded)
    reader = OrcReader(lambda: pa.OSFile(str(path)), rows.schema, ["id", "text"], 10, rows=1_000)
    first, rest = reader.step(10, False), reader.step(10_000_000, False)
    reader.close()
    assert pa.Table.from_batches([first, rest]) == rows
    assert batch_rows == [10, 1_000]


def test_text_that_is_damaged_is_an_error_and_not_handed_on(catalog: Catalog) -> None:
    """ORC has no checksums. Libraries that rely on Arrow's text being UTF-8 may crash otherwise."""
    rows = pa.table({"text": ["something to read"] * 10, "more": [[{"deep": "below"}]] * 10})
    table = catalog.create_table("db.t", rows.schema)
    file = add_orc_file(table, rows, compression="uncompressed")
    path = Path(file.file_path.removeprefix("file://"))
    whole = path.read_bytes()
    for text in (b"something", b"below"):
        damaged = whole.replace(text, b"\xf2" + text[1:])
        assert damaged != whole
        path.write_bytes(damaged)
        with pytest.raises(ice.CorruptFileError, match="UTF8"):
            list(ice.scan(table))
    path.write_bytes(whole)
    assert pa.Table.from_batches(ice.scan(table))["text"].to_pylist() == rows["text"].to_pylist()


def test_a_damaged_path_in_a_delete_file_does_not_bring_rows_back(catalog: Catalog) -> None:
    rows = pa.table({"id": range(10)})
    table = catalog.create_table("db.t", rows.schema)
    data = add_orc_file(table, rows)
    (deletes,) = commit_position_deletes(table, {data.file_path: [3, 4]}, file_format="orc")
    assert sum(batch.num_rows for batch in ice.scan(table)) == 8
    path = Path(deletes.removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b"file:", b"f\xf2le:"))
    with pytest.raises(ice.CorruptFileError, match=path.name):
        list(ice.scan(table))
