"""Memory peaks of this process: resident memory, and PyArrow's pools."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Peaks:
    """Growth since the start of the measurement, in bytes."""

    rss_growth_bytes: int
    arrow_growth_bytes: int
    rss_start_bytes: int


class PeakMeter:
    """Measures since its creation. Needs a fresh process, because pools keep their peaks."""

    def __init__(self) -> None:
        # Writing 5 resets the peak of resident memory to the current value.
        Path("/proc/self/clear_refs").write_text("5")
        self._rss_start = _status_bytes("VmRSS")
        self._arrow_start = {name: pool.bytes_allocated() for name, pool in _pools().items()}

    def peaks(self) -> Peaks:
        """Return the peaks since the meter was created."""
        # A scan may use other pools than the default one for some buffers, and
        # `pa.set_memory_pool` does not change the pools of readers. So add up all peaks.
        arrow = sum(
            max(0, (pool.max_memory() or 0) - self._arrow_start.get(name, 0))
            for name, pool in _pools().items()
        )
        rss = _status_bytes("VmHWM") - self._rss_start
        return Peaks(max(0, rss), arrow, self._rss_start)


def _pools() -> dict[str, pa.MemoryPool]:
    """Return PyArrow's pools by allocator, including the default pool."""
    pools = {}
    for make in (pa.system_memory_pool, pa.jemalloc_memory_pool, pa.mimalloc_memory_pool):
        # PyArrow may be built without this allocator.
        with suppress(NotImplementedError):
            pool = make()
            pools[pool.backend_name] = pool
    return pools


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")
