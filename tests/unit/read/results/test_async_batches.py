"""A scan in `async for`: the event loop goes on, and cancelling stops the scan."""

from __future__ import annotations

import asyncio
import threading

import pytest

import icestream as ice
from tests.support.stream_tables import FILE_ROWS, FILES


def test_batches_come_while_the_event_loop_goes_on(many_files) -> None:
    async def read() -> tuple[int, int]:
        ticks = rows = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async for batch in ice.scan(many_files, batch_size=500):
            rows += batch.num_rows
        ticking.cancel()
        return rows, ticks

    rows, ticks = asyncio.run(read())
    assert rows == FILES * FILE_ROWS
    assert ticks > 1


def test_leaving_the_loop_early_stops_reading(many_files) -> None:
    async def read(scan: ice.Scan) -> int:
        async for batch in scan:
            return batch.num_rows
        return 0

    scan = ice.scan(many_files, batch_size=500)
    assert 0 < asyncio.run(read(scan)) <= 500
    assert not scan.report.finished
    assert not [t for t in threading.enumerate() if t.name.startswith("icestream-read")]


def test_cancelling_closes_the_scan(many_files) -> None:
    async def read(scan: ice.Scan) -> None:
        async def drain() -> None:
            async for _ in scan:
                await asyncio.sleep(0)

        reading = asyncio.create_task(drain())
        while scan._last is None or scan._last.report().batches == 0:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    budget = ice.MemoryBudget("16MB")
    scan = ice.scan(many_files, batch_size=100, memory=budget)
    asyncio.run(read(scan))
    assert budget.held_bytes == 0
    assert not [t for t in threading.enumerate() if t.name.startswith("icestream-read")]


def test_errors_arrive_with_their_type(many_files) -> None:
    async def read() -> None:
        async for _ in ice.scan(many_files, memory="1kB"):
            pass

    with pytest.raises(ice.MemoryBudgetError):
        asyncio.run(read())
