"""The public face of the read side: `scan` and `read_splits`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import DataScan, FileScanTask, Table

from icestream.allocator import shorten_decay
from icestream.errors import InvalidArgumentError, ScanClosedError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.read.explain import explain
from icestream.read.files import RetryPolicy
from icestream.read.merge import BatchMerge
from icestream.read.observed_scan import ObservedScan
from icestream.read.order import ArrivalOrder, Order, TaskOrder
from icestream.read.origin import delivered_schema
from icestream.read.plan import SplitPlan, TaskSplits
from icestream.read.request import ScanRequest, request
from icestream.read.split import ReadContext, Split
from icestream.read.splitting import cut, target_of
from icestream.report import ScanExplanation, ScanReport

DEFAULT_BATCH_ROWS = 131_072


def scan(
    table: Table | DataScan,
    *,
    where: str | BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    as_of: datetime | int | None = None,
    limit: int | None = None,
    metadata_columns: Sequence[str] | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    batch_size: int | None = None,
    order: Order | None = None,
    case_sensitive: bool = True,
    retries: int = 3,
    retry_wait_seconds: float = 0.1,
) -> Scan:
    """Read a table as a stream of Arrow batches inside a memory limit.

    Args:
        table: A PyIceberg table, or a `DataScan` whose filter, columns, snapshot, limit, case
        sensitivity
            and options are taken over.
        where: Which rows: a filter string or a PyIceberg expression.
        columns: Which columns; all by default.
        snapshot_id: Read this snapshot, with the schema it was written with.
        branch: Read the head of this branch, with the table's current schema.
        tag: Read this tag, with the schema of its snapshot.
        as_of: Read the table as it was then: a datetime (UTC unless it says otherwise) or
        milliseconds.
        limit: The most rows.
        metadata_columns: What is delivered after the columns, of `_file`, `_pos` (the row's place
            in its file), `_partition` (a struct of the partition fields of all specs) and
            `_spec_id`.
        memory: The most bytes that the scan holds: `"256MB"`, bytes, or a budget shared with other
        work.
        batch_size: The most rows in a batch; 131,072 by default. Batches may be smaller.
        order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        case_sensitive: Whether column names are matched by case.
        retries: How often a transient read error is tried again.
        retry_wait_seconds: The first wait; it doubles each time.

    Returns:
        A scan: iterate over it. Nothing is read before that.

    Raises:
        InvalidArgumentError: If an argument does not fit, before anything is read.

    Memory: decoders, queued batches and delete positions together stay within `memory`. A batch
    leaves
        the account when the next one is asked for.
    """
    asked = request(
        table,
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
    return Scan(
        asked,
        splits=None,
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
    """Read a share of a scan, in any worker: the splits carry all that is needed.

    Args:
        splits: From `Scan.splits()`, here or in another process; or PyIceberg's `FileScanTask`s.
        table: For `FileScanTask`s, which carry neither schema nor file access: the `DataScan` that
            planned them (or the table, for all columns and rows).
        limit: The most rows.
        memory: As in `scan`; likewise batch_size, order, retries and retry_wait_seconds.

    Raises:
        InvalidArgumentError: If there are no splits, or they belong to different scans.
    """
    policy = RetryPolicy(retries, retry_wait_seconds)
    items: list[Any] = list(splits)
    if any(isinstance(item, FileScanTask) for item in items) or (not items and table is not None):
        if table is None:
            raise InvalidArgumentError(
                "FileScanTasks carry no schema: pass table= the DataScan that planned them"
            )
        asked = request(table, limit=limit)
        planned = list(TaskSplits(asked, items))
    else:
        if not items:
            raise InvalidArgumentError(
                "there are no splits to read: a worker without a share has nothing to do, and an "
                "empty list does not say which columns there would have been"
            )
        wrong = [type(item).__name__ for item in items if not isinstance(item, Split)]
        if wrong:
            raise InvalidArgumentError(f"read_splits() takes Split or FileScanTask, not {wrong[0]}")
        planned = _one_context(items)
        asked = None
    return Scan(
        asked,
        splits=planned,
        memory=memory,
        batch_size=batch_size,
        order=order,
        policy=policy,
        limit=limit,
        context=planned[0].context if planned else None,
    )


def read_tasks(asked: ScanRequest, tasks: Iterable[FileScanTask], memory: MemoryBudget) -> Scan:
    """Read PyIceberg's tasks, which are turned into splits one by one.

    Args:
        asked: The scan that they are of.
        tasks: The files; iterated over by each iteration of the scan.
        memory: Bounds what reading holds.
    """
    return scan_of_splits(TaskSplits(asked, tasks), asked.context, memory)


def scan_of_splits(splits: Iterable[Split], context: ReadContext, memory: MemoryBudget) -> Scan:
    """Read splits that are found while others are read.

    Args:
        splits: What to read; iterated over by each iteration of the scan.
        context: What they share.
        memory: Bounds what reading holds.
    """
    return Scan(
        None,
        splits=splits,
        context=context,
        memory=memory,
        batch_size=None,
        order=None,
        policy=RetryPolicy(),
    )


def _one_context(splits: list[Split]) -> list[Split]:
    """Let splits that were pickled apart share one context again."""
    first = splits[0].context
    for split in splits[1:]:
        other = split.context
        if other is not first and _kind(other) != _kind(first):
            raise InvalidArgumentError(
                "these splits belong to different scans (columns, filter or snapshot differ): read "
                "each scan's splits on their own"
            )
    return [s if s.context is first else replace(s, context=first) for s in splits]


def _kind(context: ReadContext) -> tuple[object, ...]:
    """What must be the same in all splits of a scan."""
    columns = (context.schema, context.metadata_columns)
    return (*columns, context.snapshot_id, str(context.row_filter))


class Scan:
    """A stream of Arrow batches. Iterate over it; each iteration reads from the start.

    Attributes:
        schema: The Arrow schema of every batch, known before the first one.
    """

    def __init__(
        self,
        asked: ScanRequest | None,
        *,
        splits: Iterable[Split] | None,
        context: ReadContext | None = None,
        memory: int | str | MemoryBudget,
        batch_size: int | None,
        order: Order | None,
        policy: RetryPolicy,
        limit: int | None = None,
    ) -> None:
        self._memory = as_budget(memory)
        self._order = order if order is not None else TaskOrder()
        if not isinstance(self._order, (TaskOrder, ArrivalOrder)):
            raise InvalidArgumentError(f"order is {order!r}: give TaskOrder() or ArrivalOrder(...)")
        self._batch_rows = _batch_rows(batch_size, self._order)
        self._policy = policy
        self._asked = asked
        self._splits = splits
        self._limit = asked.limit if asked is not None else limit
        if asked is not None:
            context = asked.context
        assert context is not None
        self._context = context
        self.schema = delivered_schema(context)
        self._closed = False
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

    def __repr__(self) -> str:
        return f"Scan({self._context.table}, {len(self.schema)} columns, {self._memory!r})"

    def close(self) -> None:
        """Stop reading: threads end, files close. The scan can't be used again."""
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
            raise ScanClosedError("there is nothing to report yet: iterate over the scan first")
        return self._last.report()

    def to_reader(self) -> pa.RecordBatchReader:
        """The scan as a `pa.RecordBatchReader`, for everything that takes one."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def splits(self, target_bytes: int | str | None = None) -> list[Split]:
        """Cut the scan into shares that other workers can read with `read_splits`.

        Args:
            target_bytes: Files larger than this are cut at row groups; the table property
                `read.split.target-size` (128 MiB unless set) by default.

        Returns:
            Picklable splits, in plan order, with ids that are stable for the snapshot.
        """
        if not isinstance(self._splits, list):
            self._splits = list(self._whole_files())
        return list(cut(self._splits, self._target(target_bytes), self._policy))

    def iter_splits(self, target_bytes: int | str | None = None) -> Iterator[Split]:
        """The same splits, one by one as planning finds them.

        Memory: what planning holds, on the scan's account, and a few splits.

        Args:
            target_bytes: Files larger than this are cut at row groups; the table property
                `read.split.target-size` (128 MiB unless set) by default.
        """
        return cut(self._whole_files(), self._target(target_bytes), self._policy)

    def explain(self) -> ScanExplanation:
        """Predict batch size, streams and buffers from metadata; no data is read."""
        return explain(
            self._whole_files(),
            asked=self._asked,
            schema=self.schema,
            order=self._order,
            budget=self._memory,
            batch_rows=self._batch_rows,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise ScanClosedError("this scan was closed: make a new one with icestream.scan()")

    def _target(self, target_bytes: int | str | None) -> int:
        metadata = self._asked.data_scan.table_metadata if self._asked else None
        return target_of(target_bytes, metadata)

    def _plan(self, stopped: threading.Event) -> Iterable[Split]:
        if self._splits is not None:
            return self._splits
        assert self._asked is not None
        return SplitPlan(self._asked, budget=self._memory, policy=self._policy, stopped=stopped)

    def _whole_files(self) -> Iterator[Split]:
        plan = self._plan(threading.Event())
        try:
            yield from plan
        finally:
            if isinstance(plan, SplitPlan):
                plan.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """One pass. A generator, so that leaving the loop early stops everything."""
        self._check_open()
        shorten_decay()
        rows_left = self._limit
        observed = ObservedScan(self._context)
        try:
            merge = self._merge()
        except BaseException as error:
            observed.end(None, error)
            raise
        self._last = merge
        self._running[merge] = observed
        try:
            while (batch := merge.next()) is not None:
                if rows_left is not None:
                    if batch.num_rows >= rows_left:
                        merge.finish_early(batch.num_rows - rows_left)
                        merge.close()  # nothing runs on while the consumer looks at the last batch
                        yield batch.slice(0, rows_left)
                        return
                    rows_left -= batch.num_rows
                yield batch
        except BaseException as error:
            if not isinstance(error, GeneratorExit):  # That is a consumer who has enough.
                merge.close()
                observed.end(merge.report(), error)
            raise
        finally:
            merge.close()
            self._running.pop(merge, None)
            observed.end(merge.report())

    def _merge(self) -> BatchMerge:
        stopped = threading.Event()
        return BatchMerge(
            # Delete manifests are read here: what they take is known to those that share the limit.
            self._plan(stopped) if self._limit != 0 else [],
            budget=self._memory,
            order=self._order,
            batch_rows=min(self._batch_rows, self._limit or self._batch_rows),
            policy=self._policy,
            stopped=stopped,
        )


def _batch_rows(batch_size: int | None, order: Order) -> int:
    for value in (batch_size, getattr(order, "batch_size", None)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise InvalidArgumentError(
                f"batch_size is {value!r}: give a whole number of rows, 1 or more"
            )
    given: list[Any] = [batch_size, getattr(order, "batch_size", None)]
    return min((v for v in given if v is not None), default=DEFAULT_BATCH_ROWS)
