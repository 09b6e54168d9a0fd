"""dlt's datasets read the Iceberg tables that icestream has written, with DuckDB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.peer_process import PEERS_PYTHON
from tests.support.process import REPOSITORY

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_PROGRAM = """
import os, sys
from pathlib import Path

import duckdb

packages = Path(duckdb.__file__).parent.parent
for name in ("avro", "iceberg"):
    folder = packages / f"duckdb_extension_{name}/extensions/v{duckdb.__version__}"
    duckdb.execute(f"INSTALL '{folder}/{name}.duckdb_extension'")

from tests.integrations.dlt_lake import lake, settings

here = Path(sys.argv[1])
os.environ.update(settings(here))
shop = lake(here)
hints = {"table_format": "iceberg", "primary_key": "id", "write_disposition": "merge"}
for rows in ([{"id": 1, "tags": [1, 2]}, {"id": 2, "tags": [3]}], [{"id": 1, "tags": [4]}]):
    shop.run(rows, table_name="orders", **hints)
data = shop.dataset()
assert sorted(data.orders["id"].fetchall()) == [(1,), (2,)]
assert data.orders__tags.arrow()["value"].to_pylist() in ([4, 3], [3, 4])
joined = "select o.id, t.value from orders o join orders__tags t on o._dlt_id = t._dlt_parent_id"
assert sorted(data(joined).fetchall()) == [(1, 4), (2, 3)]
assert data.row_counts().df().set_index("table_name")["row_count"].to_dict() == {
    "orders": 2,
    "orders__tags": 2,
}
"""


def test_a_dataset_reads_what_icestream_has_merged(tmp_path: Path) -> None:
    if not PEERS_PYTHON.exists():
        raise FileNotFoundError(f"{PEERS_PYTHON} is missing: run `make peers`")
    # dlt is in this environment, and DuckDB with its extensions in that of the peers.
    packages = tmp_path / "packages"
    packages.mkdir()
    (theirs,) = (PEERS_PYTHON.parents[1] / "lib").glob("python*/site-packages")
    for found in theirs.iterdir():
        if "duckdb" in found.name:
            (packages / found.name).symlink_to(found)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(packages), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
