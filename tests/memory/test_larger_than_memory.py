"""A file larger than the process may be is read to its end, where PyIceberg is killed (S1.6)."""

from __future__ import annotations

import sys

import pytest

from tests.memory import measured_scan
from tests.memory.conftest import measured
from tests.support.process import (
    CgroupReport,
    memory_cgroup_available,
    run_in_fresh_process,
    run_under_memory_cgroup,
)
from tests.support.tables import data_files

_MB = 1_000_000
_FILE_MB = 420
_LIMIT_BYTES = 64 * _MB
# An interpreter with PyArrow and PyIceberg takes 180 MB; the rest is for the scan and page cache.
_CGROUP_BYTES = 360 * _MB

_CHILD = """
import sys
from tests.memory import measured_scan

engine, database, warehouse, name, memory = sys.argv[1:]
place = (database, warehouse, name)
if engine == "icestream":
    print(measured_scan.stream(place, {"memory": int(memory)})["rows"])
else:
    print(measured_scan.stream_with_pyiceberg(place))
"""


def _in_cgroup(engine: str, place: tuple[str, str, str]) -> CgroupReport:
    arguments = [engine, *place, str(_LIMIT_BYTES)]
    return run_under_memory_cgroup(_CGROUP_BYTES, [sys.executable, "-c", _CHILD, *arguments])


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", ["one_row_group", pytest.param("one_orc_file", marks=pytest.mark.soak)]
)
def test_a_file_larger_than_the_memory_of_the_process_is_read_to_its_end(shapes, shape):
    place = shapes.place(shape, _FILE_MB)
    (data_file,) = data_files(shapes.table(place))
    assert data_file.file_size_in_bytes > _CGROUP_BYTES
    if not memory_cgroup_available():
        ours = measured(place, memory=_LIMIT_BYTES)
        assert ours.result["rows"] == data_file.record_count
        assert ours.peak_rss_growth_bytes <= _LIMIT_BYTES + 64 * _MB
        theirs = run_in_fresh_process(measured_scan.stream_with_pyiceberg, place)
        assert theirs.peak_rss_growth_bytes > _CGROUP_BYTES
        return
    ours = _in_cgroup("icestream", place)
    assert ours.exit_code == 0, ours.stderr
    assert int(ours.stdout) == data_file.record_count
    assert not ours.oom_kills
    theirs = _in_cgroup("pyiceberg", place)
    assert theirs.exit_code == -9
