"""Predict from metadata what a scan will do."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.read.decode.layout import buffer_bytes
from icestream.read.decode.sizing import Estimate, Sizing, StepSizing
from icestream.read.deliver.units import FileCounter
from icestream.read.filters.filter_text import filter_text
from icestream.read.order import ArrivalOrder, Order, most_streams
from icestream.read.split import ReadContext, Split
from icestream.report.scan_report import ScanExplanation

_PAGES_BYTES = 1 << 20
_TEXT_BYTES = 32


def explain(
    splits: Iterable[Split],
    *,
    context: ReadContext,
    schema: pa.Schema,
    order: Order,
    budget: MemoryBudget,
    batch_rows: int,
) -> ScanExplanation:
    """Predict with the formulas that a scan starts with, before it adjusts to measured sizes."""
    sizing = Sizing(budget.limit_bytes, batch_rows)
    files, delete_files = FileCounter(), set[int]()
    rows = size = 0
    path = ""
    for split in splits:
        path = path or split.path
        files.add(split)
        rows += split.rows
        size += split.bytes
        delete_files.update(hash(delete.path) for delete in split.deletes)
    decoded = len(context.read_schema.fields)
    per_column = buffer_bytes(budget.limit_bytes, decoded) + _PAGES_BYTES
    estimate = Estimate(sum(_width(f.type) for f in schema), per_column * decoded, rows)
    steps = StepSizing(sizing, estimate)
    batch = min(batch_rows, max(1, int(sizing.step_bytes / steps.row_bytes())))
    streams = sizing.streams(estimate, most_streams(order, path))
    held = streams * (estimate.fixed_bytes + int(sizing.step_bytes * sizing.copies))
    return ScanExplanation(
        files=files.value,
        delete_files=len(delete_files),
        rows=rows,
        compressed_bytes=size,
        columns=decoded,
        order="arrival" if isinstance(order, ArrivalOrder) else "task",
        batch_rows=batch,
        batch_bytes=int(batch * estimate.row_bytes),
        streams=streams,
        stream_bytes=estimate.fixed_bytes,
        buffer_bytes=max(budget.limit_bytes - held, 0),
        memory_limit_bytes=budget.limit_bytes,
        row_filter=filter_text(context.row_filter),
        snapshot_id=context.snapshot_id,
    )


def _width(kind: pa.DataType) -> float:
    if isinstance(kind, pa.ExtensionType):
        return _width(kind.storage_type)
    if isinstance(kind, pa.StructType):
        return sum(_width(child.type) for child in kind)
    if isinstance(kind, pa.MapType):
        return 8 + 2 * (_width(kind.key_type) + _width(kind.item_type))
    if kind.num_fields:
        return 8 + 2 * _width(kind.value_type)
    try:
        return float(kind.bit_width / 8)
    except ValueError:
        return _TEXT_BYTES
