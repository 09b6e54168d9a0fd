"""A data file that is open, and the units that it is decoded in.

A unit is a run of consecutive row groups, or a whole ORC file: what one stream decodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from icestream.allocator import trim_heap
from icestream.errors import ProjectionError
from icestream.memory import Lease, Share
from icestream.read import parquet
from icestream.read.conversion import is_text
from icestream.read.deletes import DeletedPositions, DeletedRows
from icestream.read.files import RetryPolicy, SharedFile, is_remote, retrying
from icestream.read.footer import read_footer, refuse_footer_beyond
from icestream.read.layout import RunLayout
from icestream.read.orc import OrcReader
from icestream.read.prefetch import (
    Fetcher,
    FetchPlan,
    PrefetchedFile,
    PrefetchingReader,
    Reader,
    plan_fetches,
)
from icestream.read.projection import (
    FieldIds,
    Projection,
    Unprojectable,
    compile_projection,
    leaf_columns,
    select_columns,
)
from icestream.read.prune import row_group_test
from icestream.read.rows import Mask, compile_filter
from icestream.read.sizing import Counter, Estimate, Sizing
from icestream.read.split import ReadContext, Split

T = TypeVar("T")

_UNIT_BYTES = 16 << 20
_SMALL_FOOTER_BYTES = 1 << 20  # Parsed: such a footer is charged without waiting.


class FileCounter:
    """Counts the files that splits are of, without keeping a path of each."""

    def __init__(self) -> None:
        self._whole = Counter()
        self._parts: set[str] = set()

    def add(self, split: Split) -> None:
        """Count a split's file, unless another part of it was counted before."""
        if split.row_groups is None:
            self._whole.add()
        else:  # Cut by the caller, who holds a list of these splits.
            self._parts.add(split.path)

    @property
    def value(self) -> int:
        """How many files there have been."""
        return self._whole.value + len(self._parts)


@dataclass(slots=True)
class Counters:
    """What the streams of a scan count together."""

    planned: FileCounter = field(default_factory=FileCounter)
    opened: FileCounter = field(default_factory=FileCounter)
    retries: Counter = field(default_factory=Counter)
    row_groups_skipped: Counter = field(default_factory=Counter)


@dataclass(slots=True)
class Environment:
    """What the streams of a scan share."""

    share: Share
    sizing: Sizing
    policy: RetryPolicy
    deletes: DeletedPositions
    fetcher: Fetcher
    counters: Counters
    stopped: threading.Event
    filters: dict[int, tuple[Mask | None, Projection | None]] = field(default_factory=dict)

    def row_filter(self, context: ReadContext) -> tuple[Mask | None, Projection | None]:
        """The compiled filter, and the projection that drops what only it needed."""
        key = id(context)
        if key not in self.filters:
            select = select_columns(context.read_schema, context.schema)
            mask = compile_filter(context.row_filter, context.read_schema, context.case_sensitive)
            self.filters[key] = (mask, select)
        return self.filters[key]


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """What decoding a unit takes, and how.

    Attributes:
        estimate: What it takes.
        make_reader: Opens a decoder; takes the file, and the rows of the first step.
        prefetch_bytes: What is fetched ahead, on an object store.
    """

    estimate: Estimate
    make_reader: Callable[[pa.NativeFile, int], Reader]
    prefetch_bytes: int = 0


@dataclass(slots=True)
class Unit:
    """What one stream decodes: consecutive row groups, or a whole ORC file."""

    file: OpenFile
    row_groups: tuple[int, ...]
    first_row: int
    rows: int
    lay_out: Callable[[], UnitLayout]
    _layout: UnitLayout | None = None

    @property
    def layout(self) -> UnitLayout:
        """Worked out when it is first asked for: that may read the headers of pages."""
        if self._layout is None:
            self._layout = self.lay_out()
        return self._layout


class OpenFile:
    """A data file whose metadata has been read, and the units it is decoded in."""

    def __init__(self, split: Split, environment: Environment) -> None:
        self.split = split
        self.environment = environment
        self.shared = SharedFile(split.context.io, split.path)
        self.ids: FieldIds | None = None
        self._projection: tuple[pa.Schema, Projection] | None = None
        self._deleted: DeletedRows | None = None
        self._footer_lease: Lease | None = None
        self._lock = threading.Lock()

    def units(self, is_first: Callable[[], bool] = lambda: True) -> list[Unit]:
        """Read the metadata and cut the file into units, leaving out what can't match.

        The file stays open until `close`.

        Args:
            is_first: Whether this is the file that the consumer waits for: its footer need not wait
                for room.
        """
        self.environment.counters.opened.add(self.split)
        self.retrying(self.shared.acquire)
        try:
            if self.split.format == "orc":
                return self._orc_units()
            return self._parquet_units(is_first)
        except Unprojectable as error:
            raise self.unprojectable(error) from error

    def close(self) -> None:
        """All units are done with: close the file once the last of them lets go."""
        self.shared.release()
        if self._deleted is not None:
            self._deleted.release()
        if self._footer_lease is not None:
            self._footer_lease.release()

    def retrying(self, action: Callable[[], T]) -> T:
        """Run an action on the file, with retries and typed errors."""
        environment = self.environment
        return retrying(
            action,
            path=self.split.path,
            policy=environment.policy,
            split=self.split.id,
            stopped=environment.stopped,
            on_retry=environment.counters.retries.add,
            io=self.split.context.io,
        )

    def unprojectable(self, error: Unprojectable) -> ProjectionError:
        """The public form of a projection failure."""
        return ProjectionError(
            f"{self.split.path} does not fit the table {self.split.context.table}: {error}",
            path=self.split.path,
            split=self.split.id,
        )

    def projection(self, schema: pa.Schema) -> Projection:
        """How batches of this schema become the table's; compiled once per file."""
        with self._lock:
            if self._projection is None or not self._projection[0].equals(schema):
                assert self.ids is not None
                context = self.split.context
                try:
                    compiled = compile_projection(
                        schema,
                        context.read_schema,
                        self.ids,
                        constants=dict(self.split.constants),
                        downcast_ns=context.downcast_ns,
                    )
                except Unprojectable as error:
                    raise self.unprojectable(error) from error
                self._projection = (schema, compiled)
            return self._projection[1]

    def deleted(self) -> DeletedRows | None:
        """Deleted rows, read when the first unit needs them; None without delete files."""
        if not self.split.deletes:
            return None
        with self._lock:
            if self._deleted is None:
                self._deleted = self.environment.deletes.of(self.split)
            return self._deleted

    def _parquet_units(self, is_first: Callable[[], bool]) -> list[Unit]:
        split, environment = self.split, self.environment
        footer = self._read_footer(is_first)
        metadata: pq.FileMetaData = footer.metadata
        file_schema: pa.Schema = footer.schema_arrow
        self.ids = FieldIds(file_schema, split.context.name_mapping)
        leaves = leaf_columns(file_schema, split.context.read_schema, self.ids)
        groups = range(metadata.num_row_groups)
        wanted = split.row_groups if split.row_groups is not None else groups
        if wanted and max(wanted) >= metadata.num_row_groups:
            raise Unprojectable(
                f"it has {metadata.num_row_groups} row groups, not {max(wanted) + 1}"
            )
        matches = (
            row_group_test(split.context, file_schema, self.ids)
            if split.filtered
            else (lambda group: True)
        )
        starts = _row_starts(metadata)
        kept = [
            g
            for g in wanted
            if self._has_wanted_rows(starts[g], metadata.row_group(g).num_rows)
            and matches(metadata.row_group(g))
        ]
        environment.counters.row_groups_skipped.add(len(wanted) - len(kept))
        units = []
        for run in _runs(kept, metadata):
            rows = sum(metadata.row_group(g).num_rows for g in run)
            if leaves:
                lay_out = partial(self._lay_out, metadata, file_schema, run, leaves)
            else:
                lay_out = partial(_counted, rows)
            units.append(Unit(self, run, starts[run[0]], rows, lay_out))
        return units

    def _read_footer(self, is_first: Callable[[], bool]) -> pq.ParquetFile:
        environment = self.environment
        share, stopped = environment.share, environment.stopped.is_set

        def charge(needed_bytes: int) -> None:
            if self._footer_lease is not None:  # By a try that failed.
                return
            if needed_bytes <= _SMALL_FOOTER_BYTES:
                self._footer_lease = share.force(needed_bytes)
                return
            refuse_footer_beyond(share.limit_bytes, needed_bytes, self.split.path)
            self._footer_lease = share.acquire(needed_bytes, privileged=is_first, cancelled=stopped)
            if self._footer_lease is None:
                raise OSError("the scan was stopped")

        return self.retrying(lambda: read_footer(self.shared.current(), charge))

    def _lay_out(
        self,
        metadata: pq.FileMetaData,
        file_schema: pa.Schema,
        run: tuple[int, ...],
        leaves: list[int],
    ) -> UnitLayout:
        """What decoding a run takes: looked up in the headers of pages where that is cheap."""
        environment = self.environment
        sizing = environment.sizing
        remote = is_remote(self.split.path)

        def look() -> tuple[RunLayout, list[int]]:
            handle = self.shared.acquire()
            try:
                layout = RunLayout(None if remote else handle, metadata, run, leaves, sizing)
                if remote and layout.estimate().least_bytes > sizing.limit_bytes:
                    layout.read_headers(handle)
                return layout, layout.dictionaries(file_schema)
            finally:
                self.shared.release()

        layout, dictionaries = self.retrying(look)
        make = _parquet_reader(metadata, run, leaves, layout.buffer, dictionaries)
        if not remote:
            return UnitLayout(layout.estimate(), make)
        fetches = plan_fetches(metadata, run, leaves, sizing.limit_bytes // 8)
        group_rows = [metadata.row_group(g).num_rows for g in run]
        make = _prefetching(make, fetches, environment.fetcher, group_rows)
        return UnitLayout(layout.estimate(), make, fetches.window_bytes)

    def _has_wanted_rows(self, first: int, count: int) -> bool:
        positions = self.split.positions
        if positions is None:
            return count > 0
        start, stop = np.searchsorted(positions, (first, first + count))
        return bool(start < stop)

    def _fragment(self) -> ds.Fragment:
        return ds.OrcFileFormat().make_fragment(self.shared.current())

    def _orc_units(self) -> list[Unit]:
        split = self.split
        file_schema: pa.Schema = self.retrying(lambda: self._fragment().physical_schema)
        # Asking for the schema parses the whole footer and drops it again. With a million stripes
        # that is hundreds of MB, which the scanner needs once more: don't let them add up.
        trim_heap()
        self.ids = FieldIds(file_schema, split.context.name_mapping)
        scope = self.ids.root()
        top = {f.field_id for f in split.context.read_schema.fields}
        columns = [f.name for f in file_schema if scope.field_id(f, f.name) in top]
        rows = split.rows
        if not columns or not rows:  # Manifests and tasks made by hand may lack the count.
            rows = self.retrying(lambda: self._fragment().count_rows())
            trim_heap()
        if not rows:
            return []
        if not columns:
            return [Unit(self, (), 0, rows, partial(_counted, rows))]
        plain = 3 * split.bytes * len(columns) / max(len(file_schema), 1) / rows
        estimate = Estimate(
            row_bytes=plain + 8 * len(columns),
            fixed_bytes=min(1 << 20, 3 * split.bytes),
            rows=rows,
            surprising=_has_text(file_schema),
        )
        layout = UnitLayout(estimate, partial(self._orc_reader, file_schema, columns, rows))
        return [Unit(self, (), 0, rows, lambda: layout)]

    def _orc_reader(
        self,
        schema: pa.Schema,
        columns: list[str],
        rows: int,
        handle: pa.NativeFile,
        batch_rows: int,
    ) -> OrcReader:
        """A reader that takes a way to open the file instead of the handle: it may do so again."""
        return OrcReader(self.shared.current, schema, columns, batch_rows, rows=rows)


def _has_text(schema: pa.Schema) -> bool:
    def holds(kind: pa.DataType) -> bool:
        text = is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        return text or any(holds(kind.field(i).type) for i in range(kind.num_fields))

    return any(holds(field.type) for field in schema)


def _parquet_reader(
    metadata: pq.FileMetaData,
    run: tuple[int, ...],
    leaves: list[int],
    buffer: int,
    dictionaries: list[int],
) -> Callable[[pa.NativeFile, int], Reader]:
    return lambda handle, _: parquet.ParquetReader(
        handle, metadata, run, leaves, buffer, dictionaries
    )


def _prefetching(
    make: Callable[[pa.NativeFile, int], Reader],
    plan: FetchPlan,
    fetcher: Fetcher,
    group_rows: list[int],
) -> Callable[[pa.NativeFile, int], Reader]:
    def open_prefetched(handle: pa.NativeFile, rows: int) -> Reader:
        file = PrefetchedFile(handle, plan, fetcher)
        return PrefetchingReader(make(pa.PythonFile(file, mode="r"), rows), file, group_rows)

    return open_prefetched


def _counted(rows: int) -> UnitLayout:
    """Of a unit of which no column is wanted."""
    return UnitLayout(Estimate(0.125, 0, rows), lambda handle, _: parquet.CountReader(rows))


def _row_starts(metadata: pq.FileMetaData) -> list[int]:
    starts, total = [], 0
    for group in range(metadata.num_row_groups):
        starts.append(total)
        total += metadata.row_group(group).num_rows
    return starts


def _runs(groups: list[int], metadata: pq.FileMetaData) -> list[tuple[int, ...]]:
    """Consecutive row groups together, up to about 16 MB: positions stay contiguous in a unit."""
    runs: list[list[int]] = []
    size = 0
    for group in groups:
        part = metadata.row_group(group)
        part_bytes = part.total_byte_size
        if runs and group == runs[-1][-1] + 1 and size + part_bytes <= _UNIT_BYTES:
            runs[-1].append(group)
            size += part_bytes
        else:
            runs.append([group])
            size = part_bytes
    return [tuple(run) for run in runs]
