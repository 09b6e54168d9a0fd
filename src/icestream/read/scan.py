"""The public functions for reading: `scan` and `read_splits`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan, Table

from icestream.errors import InvalidArgumentError, ScanClosedError
from icestream.memory.allocator import shorten_decay
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.read.decode.files import RetryPolicy
from icestream.read.deliver.batch_merge import BatchMerge
from icestream.read.observed_scan import ObservedScan
from icestream.read.order import ArrivalOrder, Order, TaskOrder
from icestream.read.plan.found_files import ManifestWorkers
from icestream.read.plan.scan_plan import SplitPlan, TaskSplits
from icestream.read.plan.splitting import cut, grouped, target_of
from icestream.read.project.origin import delivered_schema
from icestream.read.project.reshape import Mask, Reshaper, Transform, open_reshaper
from icestream.read.request import ScanRequest, request, with_reshape
from icestream.read.results.explain import explain
from icestream.read.results.scan_results import ScanResults
from icestream.read.split import ReadContext, Split, with_one_context
from icestream.report.scan_report import ScanExplanation, ScanReport

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

DEFAULT_BATCH_ROWS = 131_072


def scan(
    table: str | Table | DataScan | IncrementalAppendScan,
    *,
    catalog: str | Catalog | None = None,
    where: str | BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    as_of: datetime | int | None = None,
    limit: int | None = None,
    metadata_columns: Sequence[str] | None = None,
    mask: Mapping[str, Mask] | None = None,
    transform: Transform | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    batch_size: int | None = None,
    order: Order | None = None,
    case_sensitive: bool = True,
    retries: int = 3,
    retry_wait_seconds: float = 0.1,
) -> Scan:
    """Read a table as a stream of Arrow batches within a memory limit.

    Args:
        table: A table's name such as `"db.t"`, or a PyIceberg `Table`, `DataScan` or
            `IncrementalAppendScan`. A scan of PyIceberg keeps its filter, columns, snapshots,
            limit, case sensitivity and options.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        where: Row filter, as a string or a PyIceberg expression.
        columns: Names of the columns to read, in the order of the batches' columns. A repeated
            name counts once. `"address.city"` reads one field of a struct; the struct is where its
            first field is named. By default, all columns in the table's order.
        snapshot_id: Read this snapshot, with the schema it was written with.
        branch: Read the head of this branch, with the table's current schema.
        tag: Read this tag, with the schema of its snapshot.
        as_of: Read the table as it was at this time: a datetime (UTC unless it has a time zone)
            or milliseconds since 1970.
        limit: Maximum number of rows to return.
        metadata_columns: Metadata columns to add after the table's columns: `_file`, `_pos` (the
            row's position in its file), `_partition` (a struct of the partition fields of all
            specs) or `_spec_id`.
        mask: Columns whose values are hidden: `{"email": "hash"}` for the SHA-256 of each value,
            `"null"` for nulls, or a function from a `pa.Array` to another one. Filters on these
            columns are refused.
        transform: Changes each batch, after the masks: SQL such as `"SELECT id FROM batch"`, which
            DuckDB runs, or a function from a `pa.RecordBatch` to a batch, table or DataFrame. It
            sees one batch at a time, and several threads may call it. A batch without rows shows
            which columns it returns.
            `limit` counts the rows of its results.
        memory: Memory limit: a string such as `"256MB"`, a number of bytes, or a `MemoryBudget`
            shared with other work.
        batch_size: Maximum number of rows in a batch; 131,072 by default. Batches may be smaller.
        order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        case_sensitive: Whether column names are case-sensitive.
        retries: Number of times a read is retried after a transient error.
        retry_wait_seconds: Wait before the first retry. It doubles each time, up to 10 seconds.

    Returns:
        A scan to iterate over. Nothing is read before the first iteration.

    Raises:
        InvalidArgumentError: Before anything is read, if an argument is not valid for the table.

    Memory: decoders, queued batches and delete positions together stay within `memory`. A batch
        stops counting when the consumer takes the next one. DuckDB gets a quarter of `memory`, at
        least 16 MiB. Memory that a function needs while it runs does not count; its results do.
    """
    from icestream.catalogs.lookup import resolve_table  # Workers import this module without it.

    scan_request = request(
        resolve_table(table, catalog),
        where=where,
        columns=columns,
        snapshot_id=snapshot_id,
        branch=branch,
        tag=tag,
        as_of=as_of,
        limit=limit,
        metadata_columns=metadata_columns,
        case_sensitive=case_sensitive,
    )
    if mask or transform is not None:
        scan_request = with_reshape(scan_request, mask, transform)
    return Scan(
        scan_request,
        memory=memory,
        batch_size=batch_size,
        order=order,
        policy=RetryPolicy(retries, retry_wait_seconds),
    )


def read_splits(
    splits: Sequence[Split] | Sequence[FileScanTask],
    *,
    table: Table | DataScan | None = None,
    limit: int | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    batch_size: int | None = None,
    order: Order | None = None,
    retries: int = 3,
    retry_wait_seconds: float = 0.1,
) -> Scan:
    """Read splits of a scan, in the process that planned them or in another one.

    Args:
        splits: Splits from `Scan.splits()`, or PyIceberg's `FileScanTask`s.
        table: Required for `FileScanTask`s, which have neither a schema nor file access. Pass the
            `DataScan` that planned them, or the table to read all columns and rows.
        limit: Maximum number of rows to return.
        memory: Memory limit: a string such as `"256MB"`, a number of bytes, or a `MemoryBudget`
            shared with other work.
        batch_size: Maximum number of rows in a batch; 131,072 by default. Batches may be smaller.
        order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        retries: Number of times a read is retried after a transient error.
        retry_wait_seconds: Wait before the first retry. It doubles each time, up to 10 seconds.

    Returns:
        A scan to iterate over. Nothing is read before the first iteration.

    Raises:
        InvalidArgumentError: If `splits` is empty and `table` is not given, or the splits belong to
            different scans.
    """
    policy = RetryPolicy(retries, retry_wait_seconds)
    items: list[Any] = list(splits)
    if any(isinstance(item, FileScanTask) for item in items) or (not items and table is not None):
        if table is None:
            raise InvalidArgumentError(
                "FileScanTasks have no schema: pass the DataScan that planned them as table="
            )
        scan_request = request(table, limit=limit)
        planned = list(TaskSplits(scan_request, items))
    else:
        if not items:
            raise InvalidArgumentError(
                "there are no splits to read, and an empty list has no schema: skip workers that "
                "have no splits"
            )
        wrong = [type(item).__name__ for item in items if not isinstance(item, Split)]
        if wrong:
            raise InvalidArgumentError(f"read_splits() takes Split or FileScanTask, not {wrong[0]}")
        planned = with_one_context(items)
        scan_request = None
    return Scan(
        scan_request,
        splits=planned,
        memory=memory,
        batch_size=batch_size,
        order=order,
        policy=policy,
        limit=limit,
        context=planned[0].context if planned else None,
    )


def read_tasks(
    scan_request: ScanRequest, tasks: Iterable[FileScanTask], memory: MemoryBudget
) -> Scan:
    """Read PyIceberg's tasks. They are converted to splits one by one.

    Args:
        scan_request: The scan that the tasks belong to.
        tasks: The files. Each iteration of the scan iterates over them.
        memory: The budget for the bytes that reading holds.
    """
    return scan_of_splits(TaskSplits(scan_request, tasks), scan_request.context, memory)


def scan_of_splits(splits: Iterable[Split], context: ReadContext, memory: MemoryBudget) -> Scan:
    """Read splits from an iterable, which may plan later splits while earlier ones are read.

    Args:
        splits: The splits. Each iteration of the scan iterates over them.
        context: The context of all splits.
        memory: The budget for the bytes that reading holds.
    """
    return Scan(None, splits=splits, context=context, memory=memory, policy=RetryPolicy())


class Scan(ScanResults):
    """A stream of Arrow batches. Each iteration starts a new read.

    Attributes:
        schema: The Arrow schema of every batch, available before reading.
    """

    def __init__(
        self,
        scan_request: ScanRequest | None,
        *,
        splits: Iterable[Split] | None = None,
        context: ReadContext | None = None,
        memory: int | str | MemoryBudget,
        policy: RetryPolicy,
        batch_size: int | None = None,
        order: Order | None = None,
        limit: int | None = None,
    ) -> None:
        self._memory = as_budget(memory)
        self._order = order if order is not None else TaskOrder()
        if not isinstance(self._order, (TaskOrder, ArrivalOrder)):
            raise InvalidArgumentError(f"order is {order!r}: give TaskOrder() or ArrivalOrder(...)")
        self._batch_rows = _batch_rows(batch_size, self._order)
        self._policy = policy
        self._request = scan_request
        self._splits = splits
        self._limit = scan_request.limit if scan_request is not None else limit
        if scan_request is not None:
            context = scan_request.context
        assert context is not None
        self._context = context
        reshape = context.reshape
        self.schema = delivered_schema(context) if reshape is None else reshape.schema
        self._closed = False
        self._workers: ManifestWorkers | None = None
        self._running: weakref.WeakKeyDictionary[BatchMerge, ObservedScan]
        self._running = weakref.WeakKeyDictionary()
        self._last: BatchMerge | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        self._check_open()
        return self._batches()

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all threads and close all files. The scan can't be used again."""
        self._closed = True
        for merge, observed in list(self._running.items()):
            merge.close()
            observed.end(merge.report())

    @property
    def report(self) -> ScanReport:
        """What the last iteration did, or has done so far.

        Raises:
            ScanClosedError: If nothing has been read yet.
        """
        if self._last is None:
            raise ScanClosedError("the scan has no report yet: iterate over it first")
        return self._last.report()

    def to_reader(self) -> pa.RecordBatchReader:
        """The scan as a `pa.RecordBatchReader`."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    @overload
    def splits(self, target_bytes: int | str | None = None) -> list[Split]: ...

    @overload
    def splits(self, *, files_per_split: int) -> list[tuple[Split, ...]]: ...

    def splits(
        self, target_bytes: int | str | None = None, *, files_per_split: int | None = None
    ) -> list[Split] | list[tuple[Split, ...]]:
        """Cut the scan into splits that other processes can read with `read_splits`.

        Args:
            target_bytes: Files larger than this are cut at row groups. Defaults to the table
                property `read.split.target-size`, or 128 MiB.
            files_per_split: Return whole files in groups of this many, for one `read_splits` each.

        Returns:
            Picklable splits, in plan order, to which `limit` does not apply. Their ids are stable
            for a snapshot. With `files_per_split`, tuples of them.
        """
        if not isinstance(self._splits, list):
            self._splits = list(self._whole_files())
        if files_per_split is not None:
            return grouped(self._splits, files_per_split, target_bytes)
        return list(cut(self._splits, self._target(target_bytes), self._policy))

    def iter_splits(self, target_bytes: int | str | None = None) -> Iterator[Split]:
        """Like `splits`, but yield each split while the scan is being planned.

        Memory: a few splits, and the bytes for planning, which count towards the memory limit.

        Args:
            target_bytes: Files larger than this are cut at row groups. Defaults to the table
                property `read.split.target-size`, or 128 MiB.
        """
        return cut(self._whole_files(), self._target(target_bytes), self._policy)

    def explain(self) -> ScanExplanation:
        """Predict batch size, streams and buffers from metadata, without reading data."""
        return explain(
            self._whole_files(),
            context=self._context,
            schema=self.schema,
            order=self._order,
            budget=self._memory,
            batch_rows=self._batch_rows,
        )

    def _like_this(self, scan_request: ScanRequest | None, **parts: Any) -> Scan:
        """Another scan with the same memory, order and retries."""
        return Scan(
            scan_request,
            memory=self._memory,
            policy=self._policy,
            batch_size=self._batch_rows,
            order=self._order,
            **parts,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ScanClosedError("this scan was closed: create a new one with icestream.scan()")

    def _target(self, target_bytes: int | str | None) -> int:
        metadata = self._request.data_scan.table_metadata if self._request else None
        return target_of(target_bytes, metadata)

    def _plan(self, stopped: threading.Event) -> Iterable[Split]:
        if self._splits is not None:
            return self._splits
        assert self._request is not None
        return SplitPlan(
            self._request,
            budget=self._memory,
            policy=self._policy,
            stopped=stopped,
            workers=self._workers,
        )

    def _whole_files(self) -> Iterator[Split]:
        plan = self._plan(threading.Event())
        try:
            yield from plan
        finally:
            if isinstance(plan, SplitPlan):
                plan.close()

    def _batches(self) -> Generator[pa.RecordBatch]:
        """One pass over the scan. As a generator, it stops all reading if the loop ends early."""
        self._check_open()
        shorten_decay()
        rows_left = self._limit
        observed = ObservedScan(self._context)
        reshaper = None
        try:
            reshaper = open_reshaper(self._context, self._memory)
            merge = self._merge(reshaper)
        except BaseException as error:
            if reshaper is not None:
                reshaper.close()
            observed.end(None, error)
            raise
        self._last = merge
        self._running[merge] = observed
        try:
            while (batch := merge.next()) is not None:
                if rows_left is not None:
                    if batch.num_rows >= rows_left:
                        merge.finish_early(batch.num_rows - rows_left)
                        merge.close()  # No worker runs while the consumer has the last batch.
                        yield batch.slice(0, rows_left)
                        return
                    rows_left -= batch.num_rows
                yield batch
        except BaseException as error:
            if not isinstance(error, GeneratorExit):  # Not an early stop by the consumer.
                merge.close()
                observed.end(merge.report(), error)
            raise
        finally:
            merge.close()
            if reshaper is not None:
                reshaper.close()
            self._running.pop(merge, None)
            observed.end(merge.report())

    def _merge(self, reshaper: Reshaper | None) -> BatchMerge:
        stopped = threading.Event()
        return BatchMerge(
            # This reads the delete manifests, and counts their bytes towards a shared budget.
            self._plan(stopped) if self._limit != 0 else [],
            budget=self._memory,
            order=self._order,
            batch_rows=min(self._batch_rows, self._limit or self._batch_rows),
            policy=self._policy,
            stopped=stopped,
            reshaper=reshaper,
        )


def planned_by(planned: Scan, workers: ManifestWorkers) -> Scan:
    """Let workers read the data manifests of a scan, if there are enough of them."""
    planned._workers = workers
    return planned


def _batch_rows(batch_size: int | None, order: Order) -> int:
    given: list[Any] = [batch_size, getattr(order, "batch_size", None)]
    sizes = [value for value in given if value is not None]
    for value in sizes:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgumentError(
                f"batch_size is {value!r}: give a whole number of rows, 1 or more"
            )
    return min(sizes, default=DEFAULT_BATCH_ROWS)
