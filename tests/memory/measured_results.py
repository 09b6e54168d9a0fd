"""What runs in the measured process: whole results. The imports are not measured."""

from __future__ import annotations

import icestream as ice  # isort: skip
import icestream.read.scan  # isort: skip

import pandas  # noqa: F401
import polars  # noqa: F401

from tests.memory.measured_scan import load


def collect(place: tuple[str, str, str], method: str, limit_bytes: int) -> dict[str, int]:
    """Take a whole result; return its rows, or the limit that is large enough for it."""
    try:
        result = getattr(ice.scan(load(*place), memory=limit_bytes), method)()
    except ice.MemoryBudgetError as error:
        return {"needed_bytes": error.needed_bytes}
    return {"rows": len(result)}
