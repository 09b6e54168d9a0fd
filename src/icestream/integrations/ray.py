"""Ray Data over Iceberg tables. `icestream.ray` is this module.

```python
import icestream as ice

orders = ice.ray.read(table, where="price > 10", memory="256MB")
ice.ray.write(orders.map_batches(convert), target, memory="256MB")
```
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import DataScan, IncrementalAppendScan, Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import load_table
from icestream.commit.landing import check_branch
from icestream.commit.outcome.load_id import find_load
from icestream.commit.schema_change import evolved
from icestream.errors import IcestreamError, InvalidArgumentError, TaskFailedError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.operations.merge.merge import merge
from icestream.operations.overwrite import row_changes_for
from icestream.operations.row_changes import NoRowChanges
from icestream.operations.upkeep.orphans import delete_write
from icestream.operations.write_files import write_target
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.read.order import Order
from icestream.read.scan import scan
from icestream.report.write_report import MergeReport, WriteReport
from icestream.spark.writing.table_write import delete_leftovers, undone_if_refused
from icestream.write.new_file import NewFile
from icestream.write.schema.schema_plan import SchemaMode, plan_schema
from icestream.write.table_writer import Written
from icestream.write.target import WriteTarget, without_history

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["read", "write"]

# A task that Ray cancels may still close a file.
_CLEAN_UP_WAITS = (0.0, 1.0, 2.0)
# Python, PyArrow and icestream in a worker, next to the data.
_WORKER_BYTES = 256 << 20


def read(
    table: str | Table | DataScan | IncrementalAppendScan,
    *,
    catalog: str | Catalog | None = None,
    where: str | BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    memory: int | str = DEFAULT_MEMORY,
    batch_size: int | None = None,
    order: Order | None = None,
    target_bytes: int | str | None = None,
    ray_options: Mapping[str, Any] | None = None,
    **scan_options: Any,
) -> Dataset:
    """Read a table as a Ray dataset. Each task streams its splits inside the memory limit.

    The driver plans the scan when you call this. Tasks need neither the catalog nor its password.

    Args:
        table: See `icestream.scan`, also for `catalog`, `where` and `columns`.
        catalog: The catalog of a table that is given by its name.
        where: Row filter.
        columns: Names of the columns to read.
        memory: Maximum number of bytes that the scan of each task holds. Ray joins the batches of a
            task to blocks, outside this limit.
        batch_size: Maximum number of rows in a batch.
        order: Order of the batches of a task.
        target_bytes: Files larger than this are cut at row groups, so that several tasks read them.
        ray_options: Arguments for `ray.data.read_datasource`, such as `concurrency`, `num_cpus` or
            `override_num_blocks`.
        **scan_options: Further arguments of `icestream.scan`, such as `snapshot_id`, `mask` or
            `transform`.

    Returns:
        A dataset. Nothing is read before Ray executes it.

    Raises:
        InvalidArgumentError: If an argument is not valid for the table.
        MissingExtraError: If Ray Data is not installed.

    Memory: `memory` for each running task, and a block of Ray with its copy. A block has 128 MiB,
        or what `ray.data.DataContext.target_max_block_size` says.
    """
    from icestream.integrations.ray_tasks import IcestreamDatasource, TaskRead, read_datasource

    if "limit" in scan_options:
        raise InvalidArgumentError(
            "limit is not for ice.ray.read(), because tasks do not know of each other's rows: call "
            "limit() on the dataset"
        )
    planned = scan(
        table,
        catalog=catalog,
        where=where,
        columns=columns,
        batch_size=batch_size,
        order=order,
        **scan_options,
    )
    task = TaskRead(parse_bytes(memory), batch_size, order)
    source = IcestreamDatasource(planned.splits(target_bytes), planned.schema, task)
    return read_datasource(source, **(ray_options or {}))


def write(
    dataset: Dataset,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    mode: Literal["append", "overwrite", "merge"] = "append",
    on: Sequence[str] | str | None = None,
    where: str | BooleanExpression | None = None,
    partitions: Literal["dynamic"] | None = None,
    memory: int | str = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
    ray_options: Mapping[str, Any] | None = None,
    **merge_options: Any,
) -> WriteReport | MergeReport:
    """Write a Ray dataset to a table, as exactly one snapshot.

    To append and overwrite, Ray's tasks write the files, and the driver commits them. If the job
    fails, its files are deleted. To merge, the rows stream through the driver, which holds no more
    than `memory` of rows and keys.

    Args:
        dataset: The rows.
        table: A PyIceberg table, or a name such as `"db.t"`.
        catalog: For a name: a catalog, its name in PyIceberg's configuration, or None for the
            default one.
        mode: `"append"`, `"overwrite"` or `"merge"`.
        on: For a merge: the columns of the key; the table's identifier fields by default.
        where: For an overwrite: replace the rows for which this filter is true. Without it, the
            whole table is replaced.
        partitions: For an overwrite: `"dynamic"` replaces the partitions present in the dataset.
        memory: Maximum number of bytes that each task holds, and that the driver holds to merge or
            to rewrite files in which some rows are replaced.
        schema_mode: What to do if the dataset's columns differ from the table's: `"freeze"` refuses
            them, `"evolve"` changes the table in the same commit, `"discard"` drops unknown
            columns.
        branch: The branch that gets the snapshot; it must exist.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this write: a second call with the same id does nothing.
        ray_options: Arguments for `ray.remote` of the tasks that write, such as `num_cpus`; and
            `concurrency`, the maximum number of tasks at a time. By default Ray reserves `memory`
            and 256 MiB for each task.
        **merge_options: For a merge: further arguments of `icestream.merge`.

    Returns:
        A report.

    Raises:
        CommitConflictError: If the commit conflicts with a concurrent change.
        CommitUnknownError: If the commit may or may not have happened.
        TaskFailedError: If Ray's job failed for a reason that is not one of icestream's errors.

    Memory: `memory` for each running task, and the blocks that Ray passes to it, about 128 MiB.
    """
    options = WriteOptions(
        memory=parse_bytes(memory),
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    options.check()
    _check(mode, on, where, partitions, merge_options)
    table = load_table(table, catalog)
    if mode == "merge":
        return _merge(dataset, table, options, {"on": on, **merge_options})
    changes = NoRowChanges() if mode == "append" else row_changes_for(table, where, partitions)
    operation = Operation.APPEND if mode == "append" else Operation.OVERWRITE
    write_operation = WriteOperation(table, operation, changes, options)
    table.refresh()
    check_branch(table.metadata, branch or MAIN_BRANCH, table=".".join(table.name()))
    if find_load(table.metadata, branch or MAIN_BRANCH, load_id) is not None:
        return write_operation.run_files([], None)
    target, changes_of_schema = _target(dataset, table, schema_mode)
    files = _written(dataset, target, options, dict(ray_options or {}))
    with undone_if_refused(target):
        report = write_operation.run_files(
            files, evolved(target, ()), planned=target.metadata, owned=True
        )
    delete_leftovers(table, target, report, Written.of(files), retried=False)
    if report.already_committed:  # by another writer, while the tasks ran
        return report
    return replace(report, schema_changes=changes_of_schema)


def _target(
    dataset: Dataset, table: Table, schema_mode: SchemaMode
) -> tuple[WriteTarget, tuple[str, ...]]:
    """The target of all tasks, and how its schema differs from the table's."""
    target = write_target(table)
    if schema_mode != "evolve":
        return target, ()
    plan = plan_schema(target, _schema(dataset), mode=schema_mode)
    return target.with_schema(plan.schema), plan.changes


def _check(
    mode: str,
    on: object,
    where: object,
    partitions: object,
    merge_options: Mapping[str, Any],
) -> None:
    if mode not in ("append", "overwrite", "merge"):
        raise InvalidArgumentError(f"mode is {mode!r}: give 'append', 'overwrite' or 'merge'")
    if mode != "overwrite" and (where is not None or partitions is not None):
        raise InvalidArgumentError("where and partitions are for mode='overwrite'")
    if mode != "merge" and (on is not None or merge_options):
        named = ", ".join(["on"] * (on is not None) + list(merge_options))
        raise InvalidArgumentError(f"mode is {mode!r}, and {named} is for mode='merge'")


def _written(
    dataset: Dataset, target: WriteTarget, options: WriteOptions, ray_options: dict[str, Any]
) -> list[NewFile]:
    """Run the job. If it fails, its files are deleted."""
    from icestream.integrations.ray_tasks import IcestreamDatasink

    assert isinstance(options.memory, int)
    sink = IcestreamDatasink(without_history(target), options.memory, options.schema_mode)
    concurrency = ray_options.pop("concurrency", None)
    # A write that Ray runs in the task of the step before would keep all blocks of that task. Ray
    # runs it in a task of its own, because the two reserve different memory.
    ray_options.setdefault("memory", options.memory + _WORKER_BYTES)
    try:
        dataset.write_datasink(sink, ray_remote_args=ray_options, concurrency=concurrency)
    except BaseException as error:
        for seconds in _CLEAN_UP_WAITS:
            time.sleep(seconds)
            delete_write(target)
        if not isinstance(error, Exception):
            raise
        raise _shown(error, target) from error
    assert sink.files is not None
    return sink.files


def _shown(error: Exception, target: WriteTarget) -> IcestreamError:
    """The error of icestream that a task raised, without Ray's wrapping."""
    wrapped: BaseException | None = error
    while wrapped is not None:
        inner = getattr(wrapped, "cause", None)
        for each in (inner, wrapped):
            if isinstance(each, IcestreamError) and not hasattr(each, "as_instanceof_cause"):
                each.args = tuple(str(each).splitlines()[:1])  # Ray adds advice to the message.
                return each
        wrapped = wrapped.__cause__ or (inner if isinstance(inner, BaseException) else None)
    text = str(error).strip().splitlines() or [type(error).__name__]
    return TaskFailedError(
        f"Ray's job that writes to {target.table} failed, and its files are deleted: {text[-1]}"
    )


def _merge(
    dataset: Dataset, table: Table, options: WriteOptions, merge_options: dict[str, Any]
) -> MergeReport:
    schema = _schema(dataset)

    def batches() -> Iterator[pa.RecordBatch]:
        # One block at a time: their sizes vary, and batches of other sizes would copy rows.
        for rows in dataset.iter_batches(
            batch_size=None, batch_format="pyarrow", prefetch_batches=0
        ):
            yield from rows.cast(schema).to_batches()

    return merge(
        table,
        pa.RecordBatchReader.from_batches(schema, batches()),
        memory=options.memory,
        schema_mode=options.schema_mode,
        branch=options.branch,
        properties=options.properties,
        load_id=options.load_id,
        **merge_options,
    )


def _schema(dataset: Dataset) -> pa.Schema:
    """The columns of a dataset. Ray runs a part of the job if it does not know them."""
    schema = dataset.schema()
    kinds = None if schema is None else schema.base_schema
    if not isinstance(kinds, pa.Schema):
        raise InvalidArgumentError(
            "the dataset has no Arrow schema: convert its blocks with "
            "map_batches(..., batch_format='pyarrow')"
        )
    return kinds
