"""What this process may use of the machine."""

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
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def join_started(threads: Iterable[threading.Thread]) -> None:
    """Wait for threads that have been told to end.

    An interrupt inside `Thread.start` leaves a thread that never runs, or has not got so far yet:
    those are not waited for. What they find when they run is the order to end.
    """
    for thread in threads:
        while thread.ident is not None:
            try:
                thread.join()
                break
            except RuntimeError:  # It has its number, and is about to say that it has started.
                time.sleep(0.001)


def allocator_variables() -> dict[str, str]:
    """What makes jemalloc Arrow's allocator, and has it hold little that is free.

    They count where PyArrow is imported after they are set. Freed pages go back after a fifth of a
    second; few arenas, as each keeps free pages of its own (docs/design/0002).
    """
    if sys.platform == "win32":
        return {}
    arenas, decay = max(2, cores() // 2), DECAY_MILLISECONDS
    return {
        "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
        "JE_ARROW_MALLOC_CONF": f"dirty_decay_ms:{decay},muzzy_decay_ms:0,narenas:{arenas}",
    }


def resident_bytes(pid: int | str, kind: Literal["VmRSS", "VmHWM"]) -> int | None:
    """What a process has in memory (`VmRSS`), or had at most (`VmHWM`).

    Args:
        pid: The process, or `"self"`.
        kind: Which of the two.

    Returns:
        None if it has ended, or the system has no `/proc`.
    """
    try:
        lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    return None
