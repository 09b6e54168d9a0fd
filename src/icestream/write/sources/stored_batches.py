"""Parquet, ORC and Arrow IPC files as Arrow batches, inside a share of the load's memory limit.

The readers of table files read these files, too. A footer is charged before it is parsed. The
layout gives the memory that decoding takes before a column is opened. The size of each step follows
from the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.catalogs.redaction import redact
from icestream.memory.allocator import trim_heap
from icestream.memory.budget import Lease, MemoryBudget, format_bytes, over_limit
from icestream.read.decode.files import is_remote
from icestream.read.decode.footer import read_footer
from icestream.read.decode.layout import lay_out, runs
from icestream.read.decode.orc import OrcReader, orc_estimate, orc_fragment
from icestream.read.decode.parquet import ParquetReader
from icestream.read.decode.sizing import Estimate, Sizing, StepSizing
from icestream.read.decode.spread import (
    cut_out,
    dictionary_columns,
    has_dictionary,
    rows_that_fit,
    spread_schema,
)
from icestream.write.schema.sizes import cut_written_out
from icestream.write.sources.ipc_messages import IpcMessages

_READING_PARTS = 2  # Half of the limit is for reading, the rest for writers.
_BATCH_ROWS = 16_384
_LARGE_FOOTER_BYTES = 1 << 20  # The C library would keep as much memory after parsing.

Batches = Generator[pa.RecordBatch, None, None]


class _Reader(Protocol):
    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None: ...


class ReadingShare:
    """The part of a load's memory limit that is for reading its files.

    Args:
        budget: The load's budget.

    Attributes:
        part: The readers' budget; it counts in the load's budget, too.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self.part = MemoryBudget(max(1, budget.limit_bytes // _READING_PARTS), whole=budget)
        self._whole_bytes = budget.limit_bytes

    def refuse_beyond(self, needed_bytes: int, what: str, advice: str) -> None:
        """Refuse a read that takes more than this part.

        Args:
            needed_bytes: The minimum that reading takes.
            what: What takes that much, with the file's path.
            advice: What to do other than raising the limit.

        Raises:
            MemoryBudgetError: If it does; with the load's limit.
        """
        share = self.part.share()
        share.close()
        if needed_bytes <= share.limit_bytes:
            return
        # Buffers grow with the limit: name a limit with which the next try succeeds.
        raise over_limit(
            f"{what} takes {format_bytes(needed_bytes)}, a load may use "
            f"{format_bytes(share.limit_bytes)} for reading files",
            needed_bytes=int(needed_bytes * _READING_PARTS * 1.25),
            limit_bytes=self._whole_bytes,
            otherwise=advice,
        )

    def wait_for(self, needed_bytes: int) -> Lease:
        """Lease bytes for a moment; waits only while others hold a lease."""
        lease = self.part.acquire(needed_bytes, privileged=lambda: self.part.held_bytes == 0)
        assert lease is not None
        return lease


@dataclass(frozen=True, slots=True)
class ParquetColumns:
    """The columns and the number of rows in the footer of a Parquet file.

    Attributes:
        columns: The columns as stored.
        rows: Number of rows.
    """

    columns: pa.Schema
    rows: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A Parquet, ORC or Arrow IPC file.

    Attributes:
        format: `"parquet"`, `"orc"` or `"arrow"`.
        path: Its path.
        open: Opens it; called again after the file was closed.
        share: The memory for reading it.
        start: Where the part of a Parquet file to read begins.
        end: Where the part ends; None for the end of the file.
        columns: The columns of a Parquet file to read; None for all. Other formats ignore it.
    """

    format: str
    path: str
    open: Callable[[], pa.NativeFile]
    share: ReadingShare
    start: int = 0
    end: int | None = None
    columns: frozenset[str] | None = None

    @property
    def name(self) -> str:
        """The path for messages."""
        return repr(redact(self.path))

    def schema(self) -> pa.Schema:
        """Its columns. Several threads may read the columns of several files.

        Raises:
            MemoryBudgetError: If the footer is too large.
        """
        if self.format == "parquet":
            return spread_schema(self.parquet_columns().columns)
        with self.open() as handle:
            if self.format == "orc":
                return orc_fragment(handle).physical_schema
            return IpcMessages(handle).schema

    def parquet_columns(self) -> ParquetColumns:
        """Read only the footer of a Parquet file."""
        with self.open() as handle, self._footer(handle) as footer:
            return ParquetColumns(footer.schema_arrow, int(footer.metadata.num_rows))

    def batches(self) -> Batches:
        """Its rows, with the columns of `schema`, or some of them.

        Raises:
            MemoryBudgetError: If it can't be read within the share; raised before decoding.

        Memory: the share of the limit: one step, and the footer with a page and a dictionary of
            each column of a Parquet file, or a stored batch of an Arrow file.
        """
        return {"parquet": self._parquet, "orc": self._orc, "arrow": self._arrow}[self.format]()

    @contextmanager
    def _footer(self, handle: pa.NativeFile) -> Iterator[pq.ParquetFile]:
        """The footer of a Parquet file, leased while it is used."""
        leases: list[Lease] = []

        def charge(needed_bytes: int) -> None:
            self.share.refuse_beyond(
                needed_bytes,
                f"the parsed footer of {self.name}",
                "rewrite the file with fewer row groups",
            )
            leases.append(self.share.wait_for(needed_bytes))

        try:
            yield read_footer(handle, charge)
        finally:
            for lease in leases:
                if lease.held_bytes > _LARGE_FOOTER_BYTES:
                    trim_heap()
                lease.release()

    def _parquet(self) -> Batches:
        with self.open() as handle, self._footer(handle) as footer:
            metadata, file_schema = footer.metadata, footer.schema_arrow
            leaves = _leaves(file_schema, self.columns)
            groups = _groups_in_part(metadata, handle.size(), self.start, self.end)
            for run in runs(groups, metadata):
                sizing = self._sizing()
                layout, dictionaries = lay_out(
                    handle,
                    metadata,
                    file_schema,
                    run,
                    leaves,
                    sizing,
                    remote=is_remote(self.path),
                )
                estimate = layout.estimate()
                self._refuse(estimate)
                reader = ParquetReader(
                    handle, metadata, run, leaves, layout.buffer, dictionaries, large=False
                )
                try:
                    yield from self._steps(reader, estimate, sizing)
                finally:
                    reader.close()

    def _orc(self) -> Batches:
        with self.open() as handle:
            fragment = orc_fragment(handle)
            schema, rows = fragment.physical_schema, fragment.count_rows()
            file_bytes = handle.size()
            del fragment
        trim_heap()  # Each access to the file has parsed its footer.
        if not rows:
            return
        sizing = self._sizing()
        estimate = orc_estimate(schema, len(schema), file_bytes=file_bytes, rows=rows)
        self._refuse(estimate)
        first_rows = StepSizing(sizing, estimate).next_rows(self.share.part.free_bytes)
        reader = OrcReader(self.open, schema, schema.names, first_rows, rows=rows)
        try:
            yield from self._steps(reader, estimate, sizing)
        finally:
            reader.close()

    def _arrow(self) -> Batches:
        most_bytes = self._sizing().step_bytes
        lease = self.share.part.force(0)
        dictionaries = 0
        try:
            with self.open() as handle:
                messages = IpcMessages(handle)
                for size in messages.sizes():
                    self.share.refuse_beyond(
                        dictionaries + size.bytes,
                        f"a batch of {self.name}",
                        "write the file again with smaller batches",
                    )
                    if size.is_dictionary:
                        dictionaries += size.bytes
                        continue
                    lease.resize(dictionaries + size.bytes)
                    batch = messages.next_batch()
                    batch.validate(full=True)  # Arrow files have no checksums.
                    for piece in cut_written_out(batch, most_bytes):
                        yield piece
                        del piece
                    del batch
        finally:
            lease.release()

    def _sizing(self) -> Sizing:
        return Sizing(self.share.part.limit_bytes, _BATCH_ROWS)

    def _refuse(self, estimate: Estimate) -> None:
        held = self.share.part.held_bytes
        self.share.refuse_beyond(
            held + estimate.least_bytes,
            f"reading {self.name}",
            "write the file again with fewer columns, or smaller row groups and pages",
        )

    def _steps(self, reader: _Reader, estimate: Estimate, sizing: Sizing) -> Batches:
        """Decode step by step; dictionaries are expanded in parts that fit."""
        part = self.share.part
        fixed, held = part.force(estimate.fixed_bytes), part.force(0)
        steps = StepSizing(sizing, estimate)
        dictionaries: list[int] | None = None
        waiting: pa.RecordBatch | None = None
        schema: pa.Schema | None = None
        try:
            while True:
                held.resize(0)
                rows = steps.next_rows(max(part.free_bytes, sizing.step_bytes))
                held.resize(steps.step_bytes(rows))
                raw = waiting if waiting is not None else reader.step(rows, False)
                waiting = None
                if raw is None:
                    return
                if dictionaries is None or schema is None:
                    dictionaries = dictionary_columns(raw.schema)
                    schema = spread_schema(raw.schema)
                if dictionaries:
                    fitting = rows_that_fit(raw.slice(0, rows), dictionaries, steps.target_bytes())
                    if fitting < raw.num_rows:
                        waiting = raw.slice(fitting)
                        raw = cut_out(raw, fitting)
                    raw = _spread(raw, schema)
                # At the end of a row group, batches are slices, which hold more than their rows.
                steps.learn(raw.num_rows, raw.nbytes)
                held.resize(raw.get_total_buffer_size())
                yield raw
                del raw  # Before the next one is decoded.
        finally:
            held.release()
            fixed.release()


def _groups_in_part(
    metadata: pq.FileMetaData, file_bytes: int, start: int, end: int | None
) -> list[int]:
    """The row groups with rows whose middle is in a part of the file.

    Every row group has one middle, whatever its offsets are, so it is in exactly one part.
    """
    filled = [g for g in range(metadata.num_row_groups) if metadata.row_group(g).num_rows]
    if start == 0 and end is None:
        return filled
    if not metadata.num_columns:
        return filled if start == 0 else []
    first_column = (metadata.row_group(g).column(0) for g in range(metadata.num_row_groups))
    edges = [max(0, int(column.data_page_offset)) for column in first_column] + [file_bytes]
    middles = {g: (edges[g] + edges[g + 1]) // 2 for g in filled}
    return [g for g in filled if start <= middles[g] and (end is None or middles[g] < end)]


def _leaves(schema: pa.Schema, columns: frozenset[str] | None) -> list[int]:
    """The leaf columns of top-level columns; of the first column if the file has none of them."""
    counts = [_leaf_count(field.type) for field in schema]
    wanted = [columns is None or name in columns for name in schema.names]
    if not any(wanted):
        wanted[:1] = [True]
    starts = [sum(counts[:position]) for position in range(len(counts))]
    return [
        leaf
        for start, count, is_wanted in zip(starts, counts, wanted, strict=True)
        if is_wanted
        for leaf in range(start, start + count)
    ]


def _leaf_count(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaf_count(kind.field(index).type) for index in range(kind.num_fields))


def _spread(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with its dictionaries expanded."""
    columns = [
        column.cast(field.type) if has_dictionary(column.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
