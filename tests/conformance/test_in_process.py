"""The suite in this process, without Spark."""

from __future__ import annotations

import pytest

from tests.conformance.cases import Cases
from tests.conformance.engines import Engine, InProcess


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The library itself."""
    return InProcess()


class TestInProcess(Cases):
    """See `Cases`."""
