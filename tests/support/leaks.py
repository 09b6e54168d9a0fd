"""What a test left open: file descriptors and Python threads.

The threads of Arrow's pools are not Python threads, so they are not counted. Neither are the
descriptors that such pools open once per process (eventfd, epoll). PyIceberg plans scans in a pool
that lives as long as the process. Its threads are known by that pool and not counted.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.utils.concurrent import ExecutorFactory

_OPENED_ONCE = ("anon_inode:", "/dev/urandom", "/proc/")


def open_file_descriptors() -> dict[int, str]:
    """Return what each open descriptor of this process refers to."""
    found = {}
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found[int(descriptor.name)] = str(descriptor.readlink())
        except OSError:
            continue  # The one by which the directory was read.
    return {fd: target for fd, target in found.items() if not target.startswith(_OPENED_ONCE)}


def live_threads() -> set[threading.Thread]:
    """Return the running Python threads, without those of PyIceberg's pool."""
    shared = getattr(ExecutorFactory.get_or_create(), "_threads", set())
    return {thread for thread in threading.enumerate() if thread not in shared}


@contextmanager
def assert_no_leaks(
    *,
    grace_seconds: float = 2.0,
    ignore_threads: tuple[str, ...] = (),
    ignore_descriptors: tuple[str, ...] = (),
    collect_garbage: bool = False,
) -> Iterator[None]:
    """Fail if the body leaves threads or descriptors behind that were not there before.

    Args:
        grace_seconds: How long threads and descriptors may take to go away.
        ignore_threads: Prefixes of the names of threads that may stay.
        ignore_descriptors: Prefixes of what descriptors refer to that may stay: `("socket:",)` for
            object stores, whose clients keep connections open.
        collect_garbage: Run the cyclic collector before the verdict. Off by default: what only
            the collector frees was not closed.
    """
    threads_before = live_threads()
    descriptors_before = Counter(open_file_descriptors().values())
    yield
    give_up = time.monotonic() + grace_seconds
    while True:
        new_threads = [thread.name for thread in live_threads() - threads_before]
        threads = [name for name in new_threads if not name.startswith(ignore_threads)]
        new_descriptors = Counter(open_file_descriptors().values()) - descriptors_before
        descriptors = [name for name in new_descriptors if not name.startswith(ignore_descriptors)]
        if not threads and not descriptors:
            return
        if time.monotonic() > give_up:
            raise AssertionError(f"left behind: threads {threads}, descriptors {descriptors}")
        if collect_garbage:
            gc.collect()
        time.sleep(0.02)
