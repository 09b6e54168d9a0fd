"""Writes rows as one snapshot: planned on the driver, written by tasks, committed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from icestream.catalogs.lookup import load_table, open_catalog
from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.commit.outcome.retry import run_again
from icestream.commit.schema_change import SchemaConflictError
from icestream.errors import CatalogError, CredentialsExpiredError, InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.operations.row_changes import Workers
from icestream.operations.write_files import write_target
from icestream.report.write_report import WriteReport
from icestream.spark.arrow.frame_schema import arrow_schema, map_in_arrow
from icestream.spark.setup.settings import MEMORY_SETTING
from icestream.spark.tasks.direct_write import RowsTask
from icestream.spark.tasks.shown_work import NamedTask
from icestream.spark.tasks.task_write import ANSWER_PARTS, ANSWER_SCHEMA, TaskResult, run_tasks
from icestream.spark.writing.distribution import Distribution, check_distribution, distribute
from icestream.spark.writing.store_assignment import assigned
from icestream.spark.writing.table_write import FrameWriteOptions, PlannedWrite
from icestream.spark.writing.write_jobs import write_jobs
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CASE_SETTING = "spark.sql.caseSensitive"


@dataclass(frozen=True, slots=True)
class Creation:
    """How to create a table that does not exist.

    Attributes:
        partition_by: Partition fields such as `"day(ts)"`.
        sort_by: Sort fields such as `"price desc"`.
        properties: The properties of the table.
        is_new: Whether it is an error if the table exists.
    """

    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = field(default=None, repr=False)
    is_new: bool = False

    @classmethod
    def of(
        cls,
        create: bool,
        partition_by: Sequence[str],
        sort_by: Sequence[str],
        properties: Mapping[str, str] | None,
    ) -> Creation | None:
        """The caller's arguments, or None if `create` is false.

        Raises:
            InvalidArgumentError: If the arguments describe a new table but `create` is false.
        """
        if create:
            return cls(partition_by, sort_by, properties)
        if partition_by or sort_by or properties:
            raise InvalidArgumentError(
                "partition_by, sort_by and table_properties are for a new table: set create=True "
                "as well"
            )
        return None


def plan(
    table: str | Table,
    catalog: str | Catalog | None,
    stream: pa.Schema,
    options: FrameWriteOptions,
    creation: Creation | None,
) -> tuple[PlannedWrite, Table | Catalog]:
    """Plan a write into an existing or a new table.

    Returns:
        The plan, and the table or catalog for its commit.
    """
    options.check()
    return _plan_at(find_table(table, catalog, stream, creation), stream, options)


def _plan_at(
    place: Table | tuple[NewTable, Catalog], stream: pa.Schema, options: FrameWriteOptions
) -> tuple[PlannedWrite, Table | Catalog]:
    if isinstance(place, Table):
        return PlannedWrite.into(place, stream, options), place
    new, into = place
    return PlannedWrite.creating(new, stream, options, into), into


def find_table(
    table: str | Table,
    catalog: str | Catalog | None,
    stream: pa.Schema,
    creation: Creation | None,
) -> Table | tuple[NewTable, Catalog]:
    """The table, or a plan of the new table and its catalog."""
    if creation is not None and isinstance(table, str):
        catalog = open_catalog(catalog)
    try:
        existing = load_table(table, catalog)
        if creation is not None and creation.is_new:
            raise InvalidArgumentError(f"table {'.'.join(existing.name())} exists already")
        return existing
    except CatalogError as error:
        missing = isinstance(error.__cause__, (NoSuchTableError, NoSuchNamespaceError))
        if creation is None or not missing or not isinstance(catalog, Catalog):
            raise
        new = NewTable.plan(
            catalog,
            str(table),
            stream,
            partition_by=creation.partition_by,
            sort_by=creation.sort_by,
            properties=creation.properties,
        )
        return new, catalog


class Rows(Protocol):
    """Rows that tasks can write: a frame, or sources that the tasks read themselves."""

    @property
    def spark(self) -> SparkSession:
        """The session that runs the tasks."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    @property
    def columns(self) -> StructType:
        """The columns of the rows in Spark. Spark may have no type for some."""
        ...

    def assigned(self, target: WriteTarget | None, mode: SchemaMode) -> Rows:
        """The rows with types that a table accepts. The target is None for a new table."""
        ...

    def mapped(self, task: RowsTask, schema: StructType, memory_bytes: int) -> DataFrame:
        """A frame with what a task makes of its rows, which it gets with the types of `columns`."""
        ...

    def answers(self, planned: PlannedWrite) -> AbstractContextManager[DataFrame | None]:
        """The job of a write: a frame with the answer of each task, or None without tasks."""
        ...

    def renew(self) -> None:
        """Get new credentials for the sources, because those of the tasks expired."""
        ...


@dataclass(frozen=True, slots=True)
class FrameRows:
    """The rows of a frame.

    Attributes:
        frame: The frame.
        distribution: The caller's distribution. By default the table decides.
        is_assigned: Whether the columns have the types of the table. Before that, elements as in
            `array()` may have no type.
    """

    frame: DataFrame
    distribution: Distribution | None = None
    is_assigned: bool = False

    @property
    def spark(self) -> SparkSession:
        """The session of the frame."""
        return self.frame.sparkSession

    @property
    def schema(self) -> pa.Schema:
        """The columns of the frame, as tasks get them."""
        return arrow_schema(self.frame.schema, untyped=not self.is_assigned)

    @property
    def columns(self) -> StructType:
        """The columns of the frame."""
        return self.frame.schema

    def assigned(self, target: WriteTarget | None, mode: SchemaMode) -> FrameRows:
        """The frame, cast as Spark assigns values to the columns of a table."""
        return FrameRows(assigned(self.frame, target, mode), self.distribution, is_assigned=True)

    def mapped(self, task: RowsTask, schema: StructType, memory_bytes: int) -> DataFrame:
        """A frame with what a task makes of its rows."""
        return map_in_arrow(self.frame, _OfFrame(task), schema)

    @contextmanager
    def answers(self, planned: PlannedWrite) -> Iterator[DataFrame]:
        """The job of a write."""
        distributed = distribute(self.frame, planned.target, self.distribution)
        with distributed.settings():
            task = NamedTask(planned.task, f"icestream {planned.what}")
            yield map_in_arrow(distributed.frame, task, ANSWER_SCHEMA)

    def renew(self) -> None:
        """Do nothing: the credentials in a frame are those of its reader."""


@dataclass(frozen=True, slots=True)
class _OfFrame:
    """In a task: does its work on rows that Spark has read."""

    task: RowsTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.task(batches, None)


def write_frame(
    frame: DataFrame,
    table: str | Table,
    catalog: str | Catalog | None,
    options: FrameWriteOptions,
    *,
    creation: Creation | None,
    distribution: Distribution | None,
    workers: Workers | None = None,
) -> WriteReport:
    """Write a frame and commit it, as one snapshot: see `write_rows`."""
    check_distribution(distribution)
    rows = FrameRows(frame, distribution)
    return write_rows(rows, table, catalog, options, creation=creation, workers=workers)


def write_rows(
    rows: Rows,
    table: str | Table,
    catalog: str | Catalog | None,
    options: FrameWriteOptions,
    *,
    creation: Creation | None,
    workers: Workers | None = None,
) -> WriteReport:
    """Write rows and commit them, as one snapshot.

    For an overwrite, the workers rewrite files in which some rows remain. The rows are computed and
    written again if another writer has changed the schema or created the table in the meantime, or
    if the credentials of the tasks expired.

    Raises:
        TaskFailedError: If tasks failed after all retries, for reasons outside icestream.
        IcestreamError: Errors of the tasks, the plan or the commit.
    """

    def run() -> WriteReport:
        options.check()
        place = find_table(table, catalog, rows.schema, creation)
        target = write_target(place) if isinstance(place, Table) else None
        fitted = rows.assigned(target, options.schema_mode)
        planned, into = _plan_at(place, fitted.schema, options)
        try:
            results = [] if planned.already else _run(fitted, planned)
        except CredentialsExpiredError:
            rows.renew()
            raise
        return planned.commit(into, results, workers)

    return run_again(run, on=(SchemaConflictError, TableCreatedError, CredentialsExpiredError))


def frame_options(frame: DataFrame, memory: int | str | None) -> tuple[int, bool]:
    """The memory limit of a task, and whether the session distinguishes names by case."""
    conf = frame.sparkSession.conf
    memory_bytes = parse_bytes(
        memory if memory is not None else conf.get(MEMORY_SETTING, None) or DEFAULT_MEMORY
    )
    return memory_bytes, is_case_sensitive(frame.sparkSession)


def is_case_sensitive(session: SparkSession) -> bool:
    """Whether the session distinguishes names by case."""
    return str(session.conf.get(_CASE_SETTING, "false")).lower() == "true"


def _run(rows: Rows, planned: PlannedWrite) -> list[TaskResult]:
    """Run the job. If it fails, its files are deleted."""
    with (
        write_jobs(rows.spark, planned.target, planned.what),
        rows.answers(planned) as answers,
    ):
        if answers is None:
            return []
        results, retried = run_tasks(answers, TaskResult, *ANSWER_PARTS)
        return [replace(each, retried=retried) for each in results]
