"""Fresh processes are measured, limited and cleaned up after."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.process import (
    FreshProcessError,
    memory_cgroup_available,
    run_in_fresh_process,
    run_under_memory_cgroup,
)

_MEGABYTE = 1 << 20
_ALLOCATE = """
def main(size_bytes):
    block = bytearray(size_bytes)
    block[::4096] = b"x" * len(block[::4096])
    del block
    return size_bytes
"""
_FILL = "import sys; block = bytearray(int(sys.argv[1])); block[::4096] = b'x' * len(block[::4096])"


def _hold_arrow_bytes(size_bytes: int) -> int:
    memory = pa.allocate_buffer(size_bytes)
    return memory.size


def _fail(message: str) -> None:
    raise LookupError(message)


def _own_cgroups() -> list[Path]:
    # Another run's cgroup is not ours to judge: it may still be in use.
    return list(Path("/sys/fs/cgroup/memory").glob(f"icestream-tests-{os.getpid()}-*"))


@pytest.mark.parametrize("megabytes", [20, 100])
def test_peak_rss_is_seen_after_the_memory_is_freed(megabytes):
    report = run_in_fresh_process(_ALLOCATE, megabytes * _MEGABYTE)
    assert report.result == megabytes * _MEGABYTE
    assert megabytes - 4 < report.peak_rss_growth_bytes / _MEGABYTE < megabytes + 10
    assert report.max_arrow_pool_bytes == 0


@pytest.mark.parametrize("pool", ["system", "mimalloc"])
def test_arrow_bytes_are_seen_in_every_pool(pool):
    env = {"ARROW_DEFAULT_MEMORY_POOL": pool}
    report = run_in_fresh_process(_hold_arrow_bytes, 50 * _MEGABYTE, env=env)
    assert report.result == 50 * _MEGABYTE
    assert 50 * _MEGABYTE <= report.max_arrow_pool_bytes < 51 * _MEGABYTE


def test_errors_come_back_with_their_traceback():
    with pytest.raises(FreshProcessError, match="LookupError: what was lost"):
        run_in_fresh_process(_fail, "what was lost")
    with pytest.raises(FreshProcessError, match="exit code 3"):
        run_in_fresh_process("import os\ndef main(): os._exit(3)")
    with pytest.raises(ValueError, match="module level"):
        run_in_fresh_process(lambda: 1)


@pytest.mark.skipif(not memory_cgroup_available(), reason="needs root and cgroup version 1")
def test_a_memory_cgroup_kills_what_takes_too_much_and_is_removed():
    fits = run_under_memory_cgroup(
        100 * _MEGABYTE, [sys.executable, "-c", _FILL, str(40 * _MEGABYTE)]
    )
    assert fits.exit_code == 0, fits.stderr
    assert 40 * _MEGABYTE < fits.max_usage_bytes < 100 * _MEGABYTE
    assert not fits.oom_kills
    exceeds = run_under_memory_cgroup(
        100 * _MEGABYTE, [sys.executable, "-c", _FILL, str(200 * _MEGABYTE)]
    )
    assert exceeds.exit_code == -9
    assert exceeds.max_usage_bytes <= 100 * _MEGABYTE
    assert not _own_cgroups()


@pytest.mark.skipif(not memory_cgroup_available(), reason="needs root and cgroup version 1")
def test_processes_left_in_a_cgroup_are_ended():
    report = run_under_memory_cgroup(
        100 * _MEGABYTE, ["/bin/sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!"]
    )
    assert report.exit_code == 0
    command_line = Path("/proc", report.stdout.strip(), "cmdline")
    # Empty for a dead process that nobody waited for yet.
    assert not command_line.exists() or not command_line.read_bytes()
    assert not _own_cgroups()
