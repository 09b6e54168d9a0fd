"""ORC files: how much of a file is read, how often, and what a reader holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.read.orc import OrcReader
from tests.fault.watched_io import watch
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


def test_a_reader_holds_no_more_for_a_step_beyond_the_end(tmp_path: Path) -> None:
    path, rows = tmp_path / "few.orc", _rows(1_000)
    orc.write_table(rows, path)

    def opened() -> pa.NativeFile:
        return pa.OSFile(str(path))

    before = pa.total_allocated_bytes()
    reader = OrcReader(opened, rows.schema, ["id", "text"], 10, rows=1_000)
    first, rest = reader.step(10, False), reader.step(10_000_000, False)
    assert first is not None
    assert rest is not None
    assert pa.Table.from_batches([first, rest]) == rows
    held = first.get_total_buffer_size() + rest.get_total_buffer_size()
    assert pa.total_allocated_bytes() - before - held < 4_000_000
    reader.close()
