"""What holds for all tests: some run only when `-m` asks for them (`make soak`, `make interop`)."""

from __future__ import annotations

import pytest

_ON_DEMAND = ("slow", "interop")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `slow` or `interop` out of a run that has no `-m`."""
    if config.option.markexpr:
        return
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in _ON_DEMAND)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
