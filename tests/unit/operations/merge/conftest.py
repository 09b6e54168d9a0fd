"""Both ways to write changed rows."""

from __future__ import annotations

import pytest

from tests.support.merges import MODES


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """The write mode."""
    return str(request.param)
