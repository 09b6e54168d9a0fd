"""How far a run is, on disk."""

from __future__ import annotations

from pathlib import Path

from icestream.pipeline.reports.state_folder import LoadState, StateFolder
from icestream.pipeline.run_state import RunFile, RunState

_OF_THE_VERSION_BEFORE = """{
  "pipeline": "shop",
  "run_id": "20261116T120000_abcdef",
  "wanted": [
    "orders",
    "daily"
  ],
  "loads": {
    "orders": {
      "status": "done",
      "load_id": "inputs/0123456789abcdef/0123456789abcdef0123456789abcdef",
      "definition": "0123456789abcdef",
      "inputs": "0123456789abcdef0123456789abcdef",
      "changes": 0,
      "fingerprint": "",
      "snapshot_id": 4711,
      "old_branches": [],
      "created_uuid": null,
      "left_out": []
    },
    "daily": {
      "status": "begun",
      "load_id": "shop/20261116T120000_abcdef/daily/1",
      "definition": "fedcba9876543210",
      "inputs": null,
      "changes": 1,
      "fingerprint": "aaaabbbbccccdddd",
      "snapshot_id": null,
      "old_branches": [
        "icestream_audit_daily_20261115T120000_fedcba"
      ],
      "created_uuid": "6f2c2a4e-0000-4000-8000-000000000001",
      "left_out": [
        "note"
      ]
    }
  },
  "completed": false,
  "ended": false,
  "again": true
}
"""
_STATE = RunState(
    "shop",
    "20261116T120000_abcdef",
    ["orders", "daily"],
    {
        "orders": LoadState(
            "done",
            "inputs/0123456789abcdef/0123456789abcdef0123456789abcdef",
            "0123456789abcdef",
            "0123456789abcdef0123456789abcdef",
            snapshot_id=4711,
        ),
        "daily": LoadState(
            load_id="shop/20261116T120000_abcdef/daily/1",
            definition="fedcba9876543210",
            changes=1,
            fingerprint="aaaabbbbccccdddd",
            old_branches=["icestream_audit_daily_20261115T120000_fedcba"],
            created_uuid="6f2c2a4e-0000-4000-8000-000000000001",
            left_out=["note"],
        ),
    },
    again=True,
)


def test_a_run_of_the_version_before_is_read_and_written_in_the_same_way(tmp_path: Path) -> None:
    file = RunFile(StateFolder(tmp_path), "shop")
    file.path.parent.mkdir()
    file.path.write_text(_OF_THE_VERSION_BEFORE)
    assert file.open_run() == _STATE
    state, resumed = file.begin(["daily"], fresh=False)
    assert (state, resumed) == (_STATE, True)
    assert file.path.read_text() == _OF_THE_VERSION_BEFORE
