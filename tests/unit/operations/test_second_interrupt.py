"""A second Ctrl-C, while the first one is cleaned up after."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.commit.in_flight import MARKER_PREFIX
from icestream.write.parquet.encode_pool import EncodePool
from tests.support.leaks import assert_no_leaks
from tests.support.stored import folder_of, referenced_files, stored_files

_ROWS = pa.table({"id": range(2_000_000)})
_ROW_GROUP = "write.parquet.row-group-size-bytes"


@pytest.mark.parametrize("moment", ["cancel", "close"])
def test_no_thread_goes_on_and_no_row_is_lost(catalog: Catalog, moment: str) -> None:
    table = catalog.create_table("db.t", _ROWS.schema, properties={_ROW_GROUP: "1000000"})

    def rows() -> Iterator[pa.RecordBatch]:
        yield from _ROWS.to_batches(max_chunksize=100_000)
        raise KeyboardInterrupt

    with assert_no_leaks():
        with (
            mock.patch.object(EncodePool, moment, side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            ice.append(table, pa.RecordBatchReader.from_batches(_ROWS.schema, rows()))
        gc.collect()
    assert table.refresh().current_snapshot() is None
    (marker,) = [path for path in stored_files(folder_of(table)) if MARKER_PREFIX in path]
    ice.append(table, _ROWS.slice(0, 3))
    # What the first write has left stays as long as this process may still be about to use it.
    ice.orphans(table, older_than=0, delete=True)
    assert marker in stored_files(folder_of(table))
    assert referenced_files(table) <= stored_files(folder_of(table))
