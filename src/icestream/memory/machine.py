"""The cores, the memory and the allocator settings of this process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

DECAY_MILLISECONDS = 200


def cores() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def join_started(threads: Iterable[threading.Thread]) -> None:
    """Wait for threads to end that were already signalled to stop.

    An interrupt inside `Thread.start` can leave a thread that never runs or has not started yet.
    Such threads are skipped: if they do run, they see the signal and stop.
    """
    for thread in threads:
        while thread.ident is not None:
            try:
                thread.join()
                break
            except RuntimeError:  # It has an id, but is not marked as started yet.
                time.sleep(0.001)


def allocator_variables() -> dict[str, str]:
    """Environment variables that make jemalloc Arrow's allocator, tuned to keep few free pages.

    They take effect if they are set before PyArrow is imported. Freed pages are returned after a
    fifth of a second. There are few arenas, because each keeps free pages (docs/design/0002).
    """
    if sys.platform == "win32":
        return {}
    arenas, decay = max(2, cores() // 2), DECAY_MILLISECONDS
    return {
        "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
        "JE_ARROW_MALLOC_CONF": f"dirty_decay_ms:{decay},muzzy_decay_ms:0,narenas:{arenas}",
    }


def resident_bytes(pid: int | str, kind: Literal["VmRSS", "VmHWM"]) -> int | None:
    """The current (`VmRSS`) or peak (`VmHWM`) resident size of a process.

    Args:
        pid: The process id, or `"self"`.
        kind: Which of the two sizes.

    Returns:
        None if the process has ended, or the system has no `/proc`.
    """
    try:
        lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    return None
