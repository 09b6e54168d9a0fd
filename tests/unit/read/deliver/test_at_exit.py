from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.read.deliver import at_exit
from tests.support.loads import ids, make_table

_ENDS_IN_THE_MIDDLE = """
import os, sys
from pyiceberg.table import StaticTable
import icestream as ice
scan = ice.scan(StaticTable.from_metadata(sys.argv[1]))
batches = iter(scan)
batch = next(batches)
print(batch.num_rows)
if sys.argv[2] == "fork" and os.fork():
    os.wait()
"""


def test_a_process_that_ends_during_a_scan_does_not_crash(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1_000))
    for how in ("plain", "fork", "plain", "plain"):  # It crashed most of the time, not always.
        done = subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-c",
                _ENDS_IN_THE_MIDDLE,
                table.metadata_location,
                how,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split()[0] == "1000"


def test_scans_that_ended_are_forgotten(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    before = len(at_exit._open)
    scan = ice.scan(table)
    batches = iter(scan)
    next(batches)
    assert len(at_exit._open) == before + 1
    batches.close()  # type: ignore[attr-defined]
    del scan, batches
    assert len(at_exit._open) == before
