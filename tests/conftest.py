"""What holds for all tests: some run only when `-m` asks for them (`make soak`, `make interop`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_ON_DEMAND = ("slow", "interop")


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `slow` or `interop` out of a run that has no `-m`.

    With `--dist loadgroup` a file's tests stay together, and all that share a Spark do: a JVM takes
    long to start, and longer to be quick.
    """
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            shares = "running_spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shares else str(item.path)))
    if config.option.markexpr:
        return
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in _ON_DEMAND)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def running_spark() -> Iterator[Any]:
    """A session as `icestream.spark.session` makes it. A process has one: nobody else stops it."""
    import icestream.spark as ice_spark

    running = ice_spark.session("local[2]", memory="64MB")
    yield running
    running.stop()
