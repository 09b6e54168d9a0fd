"""What a scan is going to do, predicted from metadata."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from icestream.memory import MemoryBudget
from icestream.read.layout import buffer_bytes
from icestream.read.order import ArrivalOrder, Order, most_streams
from icestream.read.request import ScanRequest
from icestream.read.sizing import Estimate, Sizing, StepSizing
from icestream.read.split import Split
from icestream.read.units import FileCounter
from icestream.report import ScanExplanation

_PAGES_BYTES = 1 << 20
_TEXT_BYTES = 32


def explain(
    splits: Iterable[Split],
    *,
    asked: ScanRequest | None,
    schema: pa.Schema,
    order: Order,
    budget: MemoryBudget,
    batch_rows: int,
) -> ScanExplanation:
    """Predict with the arithmetic that the scan itself starts from; the scan then measures."""
    sizing = Sizing(budget.limit_bytes, batch_rows)
    found = _Found()
    for split in splits:
        found.add(split)
    first = found.first
    context = first.context if first is not None else (asked.context if asked else None)
    decoded = len(context.read_schema.fields) if context else len(schema)
    per_column = buffer_bytes(budget.limit_bytes, decoded) + _PAGES_BYTES
    rows = found.rows
    estimate = Estimate(sum(_width(f.type) for f in schema), per_column * decoded, rows)
    steps = StepSizing(sizing, estimate)
    batch = min(batch_rows, max(1, int(sizing.step_bytes / steps.row_bytes())))
    streams = sizing.streams(estimate, most_streams(order, first.path if first is not None else ""))
    held = streams * (estimate.fixed_bytes + int(sizing.step_bytes * sizing.copies))
    return ScanExplanation(
        files=found.files.value,
        delete_files=len(found.delete_files),
        rows=rows,
        compressed_bytes=found.bytes,
        columns=decoded,
        order="arrival" if isinstance(order, ArrivalOrder) else "task",
        batch_rows=batch,
        batch_bytes=int(batch * estimate.row_bytes),
        streams=streams,
        stream_bytes=estimate.fixed_bytes,
        buffer_bytes=max(budget.limit_bytes - held, 0),
        memory_limit_bytes=budget.limit_bytes,
        row_filter=str(context.row_filter) if context else "",
        snapshot_id=context.snapshot_id if context else None,
    )


class _Found:
    """What the splits are together; none of them is kept but the first."""

    def __init__(self) -> None:
        self.first: Split | None = None
        self.files = FileCounter()
        self.rows = self.bytes = 0
        self.delete_files: set[int] = set()

    def add(self, split: Split) -> None:
        if self.first is None:
            self.first = split
        self.files.add(split)
        self.rows += split.rows
        self.bytes += split.bytes
        self.delete_files.update(hash(delete.path) for delete in split.deletes)


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
