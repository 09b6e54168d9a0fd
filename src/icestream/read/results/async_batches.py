"""Batches for `async for`, which leave the event loop free while a batch is decoded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress

import pyarrow as pa


async def async_batches(
    batches: Generator[pa.RecordBatch], close_scan: Callable[[], None]
) -> AsyncGenerator[pa.RecordBatch]:
    """Iterate over batches in a thread.

    Args:
        batches: The batches.
        close_scan: Stops the scan. Called when the task is cancelled while a batch is decoded.
    """
    try:
        while (batch := await _next(batches, close_scan)) is not None:
            yield batch
            del batch  # Before the next one is decoded.
    finally:
        batches.close()


async def _next(
    batches: Generator[pa.RecordBatch], close_scan: Callable[[], None]
) -> pa.RecordBatch | None:
    import asyncio  # Most scans do not need it.

    step = asyncio.ensure_future(asyncio.to_thread(next, batches, None))
    try:
        return await asyncio.shield(step)
    except asyncio.CancelledError:
        # The thread can't be cancelled: stop the scan, so that the thread ends.
        await asyncio.to_thread(close_scan)
        with suppress(Exception):
            await step
        raise
