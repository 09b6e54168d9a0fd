"""Open data files, and the units that they are decoded in.

A unit is what one stream decodes: a run of consecutive row groups, or a whole ORC file.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from icestream.errors import ProjectionError
from icestream.memory.allocator import trim_heap
from icestream.memory.budget import Lease, Share
from icestream.read.decode.files import RetryPolicy, SharedFile, is_remote, retrying
from icestream.read.decode.footer import read_footer, refuse_footer_beyond
from icestream.read.decode.layout import RunLayout, lay_out, runs
from icestream.read.decode.orc import OrcReader, orc_estimate, orc_fragment
from icestream.read.decode.parquet import CountReader, ParquetReader
from icestream.read.decode.prefetch import (
    Fetcher,
    PrefetchedFile,
    PrefetchingReader,
    Reader,
    plan_fetches,
)
from icestream.read.decode.sizing import Counter, Estimate, Sizing
from icestream.read.deletes.delete_files import DeletedPositions, DeletedRows
from icestream.read.deletes.position_set import PositionSet
from icestream.read.plan.prune import row_group_test
from icestream.read.project.projection import (
    FieldIds,
    Projection,
    Unprojectable,
    compile_projection,
    leaf_columns,
    select_columns,
)
from icestream.read.project.reshape import Reshaper
from icestream.read.project.row_filter import Mask, compile_filter
from icestream.read.split import ReadContext, Split

if TYPE_CHECKING:
    import pyarrow.dataset as ds

T = TypeVar("T")

_SMALL_FOOTER_BYTES = 1 << 20  # Parsed footers up to this size are leased without waiting.


class FileCounter:
    """Counts the files of splits, without keeping the paths of whole files."""

    def __init__(self) -> None:
        self._whole = Counter()
        self._parts: set[str] = set()
        self._bytes = Counter()

    def add(self, split: Split) -> None:
        """Count the file of a split, unless another part of it was counted before."""
        self._bytes.add(split.bytes)
        if split.row_groups is None:
            self._whole.add()
        else:  # The caller cut the file and holds a list of these splits.
            self._parts.add(split.path)

    @property
    def value(self) -> int:
        """Number of files counted."""
        return self._whole.value + len(self._parts)

    @property
    def bytes(self) -> int:
        """Size of the files and parts counted, in storage."""
        return self._bytes.value


@dataclass(slots=True)
class Counters:
    """Counters that the streams of a scan share."""

    planned: FileCounter = field(default_factory=FileCounter)
    opened: FileCounter = field(default_factory=FileCounter)
    retries: Counter = field(default_factory=Counter)
    row_groups_skipped: Counter = field(default_factory=Counter)


@dataclass(slots=True)
class Environment:
    """Resources that the streams of a scan share."""

    share: Share
    sizing: Sizing
    policy: RetryPolicy
    deletes: DeletedPositions
    fetcher: Fetcher
    counters: Counters
    stopped: threading.Event
    reshaper: Reshaper | None = None
    filters: dict[int, tuple[Mask | None, Projection | None]] = field(default_factory=dict)

    def row_filter(self, context: ReadContext) -> tuple[Mask | None, Projection | None]:
        """The compiled filter, and the projection that drops columns which only it needed."""
        key = id(context)
        if key not in self.filters:
            select = select_columns(context.read_schema, context.schema)
            mask = compile_filter(context.row_filter, context.read_schema, context.case_sensitive)
            self.filters[key] = (mask, select)
        return self.filters[key]


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """The memory for decoding a unit, and its reader.

    Attributes:
        estimate: The estimated memory.
        make_reader: Opens a reader. Takes the file and the rows of the first step.
        prefetch_bytes: Bytes that are fetched ahead on an object store.
    """

    estimate: Estimate
    make_reader: Callable[[pa.NativeFile, int], Reader]
    prefetch_bytes: int = 0


@dataclass(slots=True)
class Unit:
    """The part of a file that one stream decodes: consecutive row groups, or an ORC file."""

    file: OpenFile
    row_groups: tuple[int, ...]
    first_row: int
    rows: int
    lay_out: Callable[[], UnitLayout]
    _layout: UnitLayout | None = None

    @property
    def layout(self) -> UnitLayout:
        """The layout, computed on first use. This may read page headers."""
        if self._layout is None:
            self._layout = self.lay_out()
        return self._layout


class OpenFile:
    """An open data file, with its projection, its deletes and its units."""

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
        """Read the metadata, and cut the file into units. Skips row groups that can't match.

        The file stays open until `close`.

        Args:
            is_first: Whether the consumer waits for this file. Then its footer need not wait for
                free memory.
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
        """Close the file, and release its deletes and its footer."""
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
        """The projection for batches of this schema, compiled once for each file."""
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
        """The deleted rows, read when the first unit needs them; None without delete files."""
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
        starts = list(accumulate((metadata.row_group(g).num_rows for g in groups), initial=0))
        kept = [
            g
            for g in wanted
            if self._has_wanted_rows(starts[g], metadata.row_group(g).num_rows)
            and matches(metadata.row_group(g))
        ]
        environment.counters.row_groups_skipped.add(len(wanted) - len(kept))
        units = []
        for run in runs(kept, metadata):
            rows = sum(metadata.row_group(g).num_rows for g in run)
            if leaves:
                layout = partial(self._lay_out, metadata, file_schema, run, leaves)
            else:
                layout = partial(_counted, rows)
            units.append(Unit(self, run, starts[run[0]], rows, layout))
        return units

    def _read_footer(self, is_first: Callable[[], bool]) -> pq.ParquetFile:
        environment = self.environment
        share, stopped = environment.share, environment.stopped.is_set

        def charge(needed_bytes: int) -> None:
            if self._footer_lease is not None:  # By an attempt that failed.
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
        """The layout of a run, with exact sizes from page headers if those are cheap to read."""
        environment = self.environment
        sizing = environment.sizing
        remote = is_remote(self.split.path)

        def look() -> tuple[RunLayout, list[int]]:
            handle = self.shared.acquire()
            try:
                return lay_out(handle, metadata, file_schema, run, leaves, sizing, remote=remote)
            finally:
                self.shared.release()

        layout, dictionaries = self.retrying(look)
        buffer = layout.buffer

        def open_reader(handle: pa.NativeFile, rows: int) -> Reader:
            return ParquetReader(handle, metadata, run, leaves, buffer, dictionaries)

        if not remote:
            return UnitLayout(layout.estimate(), open_reader)
        fetches = plan_fetches(metadata, run, leaves, sizing.limit_bytes // 8)
        group_rows = [metadata.row_group(g).num_rows for g in run]

        def open_prefetched(handle: pa.NativeFile, rows: int) -> Reader:
            file = PrefetchedFile(handle, fetches, environment.fetcher)
            reader = open_reader(pa.PythonFile(file, mode="r"), rows)
            return PrefetchingReader(reader, file, group_rows)

        return UnitLayout(layout.estimate(), open_prefetched, fetches.window_bytes)

    def _has_wanted_rows(self, first: int, count: int) -> bool:
        positions = self.split.positions
        if positions is None:
            return count > 0
        if isinstance(positions, PositionSet):
            return positions.has_any(first, first + count)
        start, stop = np.searchsorted(positions, (first, first + count))
        return bool(start < stop)

    def _orc(self) -> ds.Fragment:
        return orc_fragment(self.shared.current())

    def _orc_units(self) -> list[Unit]:
        split = self.split
        file_schema: pa.Schema = self.retrying(lambda: self._orc().physical_schema)
        # Reading the schema parses the whole footer and drops it. With a million stripes that is
        # hundreds of MB, and the scanner needs as much again. Return the memory first.
        trim_heap()
        self.ids = FieldIds(file_schema, split.context.name_mapping)
        scope = self.ids.root()
        top = {f.field_id for f in split.context.read_schema.fields}
        columns = [f.name for f in file_schema if scope.field_id(f, f.name) in top]
        rows = split.rows
        if not columns or not rows:  # Manifests and tasks built by hand may lack the count.
            rows = self.retrying(lambda: self._orc().count_rows())
            trim_heap()
        if not rows:
            return []
        if not columns:
            return [Unit(self, (), 0, rows, partial(_counted, rows))]
        estimate = orc_estimate(file_schema, len(columns), file_bytes=split.bytes, rows=rows)

        def open_reader(handle: pa.NativeFile, batch_rows: int) -> Reader:
            # It gets a function instead of the handle, because it may reopen the file.
            return OrcReader(self.shared.current, file_schema, columns, batch_rows, rows=rows)

        return [Unit(self, (), 0, rows, lambda: UnitLayout(estimate, open_reader))]


def _counted(rows: int) -> UnitLayout:
    """The layout of a unit without any column to decode."""
    return UnitLayout(Estimate(0.125, 0, rows), lambda handle, _: CountReader(rows))
