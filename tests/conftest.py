"""What holds for all tests: some run only when `-m` asks for them (`make test-long`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

_ON_DEMAND = ("slow", "soak", "interop")
_SPARK = "tests/spark/"
_ON_THE_JVM = (_SPARK, "tests/conformance/")
_JVM_SECONDS = 900

# Half of what a Spark of a few seconds takes is Java's second compiler, which is for longer runs.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
# A shell that runs tests in the background has them ignore Ctrl-C, and so what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `slow`, `soak` or `interop` out of a run that has no `-m`."""
    for item in items:
        # A test that is interrupted in a call to the JVM takes all that share the JVM with it.
        if item.nodeid.startswith(_ON_THE_JVM) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_JVM_SECONDS))
    if config.option.markexpr:
        return
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in _ON_DEMAND)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests in one process, and all of tests/spark, which share a Spark.

    A JVM takes long to start, and longer to be quick.
    """
    from xdist.scheduler import LoadFileScheduling

    class _Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _SPARK if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)

    return _Together(config, log)


@pytest.fixture(scope="session")
def running_spark() -> Iterator[Any]:
    """A session as `icestream.spark.session` makes it. A process has one: nobody else stops it."""
    import icestream.spark as ice_spark

    running = ice_spark.session("local[2]", memory="64MB")
    yield running
    running.stop()
