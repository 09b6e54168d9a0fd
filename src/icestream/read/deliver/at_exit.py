"""Close the reads that are still open when the interpreter ends.

The interpreter ends daemon threads in the middle of their work. A thread inside PyArrow then aborts
the process: a script that took one batch and ended would have crashed after its last line.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """Something whose threads end when it is closed. Closing it twice is allowed."""

    def close(self) -> None: ...


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_exit(read: Closable) -> None:
    """Close a read when the interpreter ends, unless it has been garbage-collected by then."""
    _open.add(read)


@atexit.register
def _close_open() -> None:
    for read in list(_open):
        read.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open.clear)  # A fork has none of the threads.
