"""What holds for all tests: some run only when `-m` asks for them (`make test-long`)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

_ON_DEMAND = ("slow", "soak", "interop")
_SPARK = "tests/spark/"
_CONFORMANCE = "tests/conformance/"
_OF_THE_TESTS = "tests/unit/support/"
_ON_THE_JVM = (_SPARK, _CONFORMANCE)
_DOCUMENTS = "tests/docs/test_documents.py"
_KILLED = "tests/spark/test_killed_loads.py"
# They take as long as all others of Spark in a run without `-m`, which leaves out what is slow.
_SECOND_JVM = tuple(
    f"{_SPARK}test_{name}.py"
    for name in ("direct_loads", "distant_years", "format_read", "pipeline_loads")
)
# Folders with few tests that take long. At the end of a run, one process would work on them alone.
_FIRST = (*_ON_THE_JVM, _DOCUMENTS, "tests/torture/", "tests/memory/", "tests/fault/")
_JVM_SECONDS = 900
_FEW_CASES = 3

# Half of what a Spark of a few seconds takes is Java's second compiler, which is for longer runs.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
# A shell that runs tests in the background has them ignore Ctrl-C, and so what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `slow`, `soak` or `interop` out of a run that has no `-m`.

    Tests that take long come first.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(_FIRST))
    for item in items:
        if item.nodeid.startswith(_OF_THE_TESTS):
            item.add_marker(pytest.mark.slow)
        # A test that is interrupted in a call to the JVM takes all that share the JVM with it.
        if item.nodeid.startswith(_ON_THE_JVM) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_JVM_SECONDS))
    for item in _redundant(items):
        item.add_marker(pytest.mark.slow)
    if config.option.markexpr:
        return
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        on_demand = any(item.get_closest_marker(name) for name in _ON_DEMAND)
        (left_out if on_demand else kept).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def _redundant(items: list[pytest.Item]) -> list[pytest.Item]:
    """Cases of tests with several parameters that are not needed to have each value once.

    So the short run takes a few of 6 x 4 x 6 combinations, and the long run the rest.
    """
    cases: dict[str, list[tuple[pytest.Item, set[tuple[int, str]]]]] = {}
    for item in items:
        values: list[str] = getattr(getattr(item, "callspec", None), "_idlist", [])
        if len(values) > 1 and not any(item.get_closest_marker(name) for name in _ON_DEMAND):
            test = item.nodeid.partition("[")[0]
            cases.setdefault(test, []).append((item, set(enumerate(values))))
    redundant = []
    for all_cases in cases.values():
        if len(all_cases) <= _FEW_CASES:
            continue
        wanted = set().union(*(values for _, values in all_cases))
        while wanted:
            best = max(all_cases, key=lambda case: len(case[1] & wanted))
            all_cases.remove(best)
            wanted -= best[1]
        redundant += [item for item, _ in all_cases]
    return redundant


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, and nearly all that start a JVM in two processes.

    A JVM takes long to start and to warm up, and with many at once Spark's timeouts pass. Killed
    loads have a third process, as they wait more than they work. Without slow tests, conformance
    leaves its process free, which takes a half of Spark's tests then.
    """
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False  # It would start files with many tests first.

    class _Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            second = () if config.option.markexpr else _SECOND_JVM
            if nodeid.startswith((_CONFORMANCE, _DOCUMENTS, *second)):
                return _CONFORMANCE
            if nodeid.startswith(_SPARK) and not nodeid.startswith(_KILLED):
                return _SPARK
            return super()._split_scope(nodeid)

    return _Together(config, log)


@pytest.fixture(scope="session")
def running_spark() -> Iterator[Any]:
    """A session as `icestream.spark.session` makes it. A process has one: nobody else stops it."""
    import icestream.spark as ice_spark

    running = ice_spark.session("local[2]", memory="64MB")
    yield running
    running.stop()
