"""From a DataFrame to a snapshot: planned here, written by tasks, committed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from icestream.catalogs import load_table, open_catalog
from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.commit.schema_change import SchemaConflictError
from icestream.errors import CatalogError, CredentialsExpiredError, InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.report import WriteReport
from icestream.spark.arrow_map import map_in_arrow
from icestream.spark.distribution import Distribution, check_distribution, distribute
from icestream.spark.frame_schema import arrow_schema
from icestream.spark.settings import MEMORY_SETTING
from icestream.spark.table_write import PlannedWrite, WriteOptions
from icestream.spark.task_answer import ANSWER_PARTS, ANSWER_SCHEMA, run_tasks
from icestream.spark.task_failure import driver_error
from icestream.spark.task_write import TaskResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIES = 3
_CASE_SETTING = "spark.sql.caseSensitive"


@dataclass(frozen=True, slots=True)
class Creation:
    """How a table is created that is not there.

    Attributes:
        partition_by: Texts such as `"day(ts)"`.
        sort_by: Texts such as `"price desc"`.
        properties: The table's.
    """

    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        create: bool,
        partition_by: Sequence[str],
        sort_by: Sequence[str],
        properties: Mapping[str, str] | None,
    ) -> Creation | None:
        """What the caller's arguments say; None where no table is to be created.

        Raises:
            InvalidArgumentError: If they describe a table that is not to be created.
        """
        if create:
            return cls(partition_by, sort_by, properties)
        if partition_by or sort_by or properties:
            raise InvalidArgumentError(
                "partition_by, sort_by and table_properties are for a table that is created: give "
                "create=True, too"
            )
        return None


def plan(
    table: str | Table,
    catalog: str | Catalog | None,
    stream: pa.Schema,
    options: WriteOptions,
    creation: Creation | None,
) -> tuple[PlannedWrite, Table | Catalog]:
    """Plan a write into a table, or one that creates it.

    Returns:
        The plan, and what it is to be committed to.
    """
    options.check()
    found = find_table(table, catalog, stream, creation)
    if isinstance(found, Table):
        return PlannedWrite.into(found, stream, options), found
    new, into = found
    return PlannedWrite.creating(new, stream, options, into), into


def find_table(
    table: str | Table,
    catalog: str | Catalog | None,
    stream: pa.Schema,
    creation: Creation | None,
) -> Table | tuple[NewTable, Catalog]:
    """The table; or what is to be created, and where."""
    if creation is not None and isinstance(table, str):
        catalog = open_catalog(catalog)
    try:
        return load_table(table, catalog)
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


def write_frame(
    frame: DataFrame,
    table: str | Table,
    catalog: str | Catalog | None,
    options: WriteOptions,
    *,
    creation: Creation | None,
    distribution: Distribution | None,
) -> WriteReport:
    """Write a frame and commit it, as one snapshot.

    A write that lost against a change of the schema, or against somebody who created the table, is
    run again: the frame is computed anew. So is one whose tasks saw their credentials expire: it
    begins with fresh ones.

    Raises:
        TaskFailedError: If tasks failed for good, for a reason that is not icestream's.
        IcestreamError: What the tasks themselves, the plan or the commit raised.
    """
    check_distribution(distribution)
    stream = arrow_schema(frame.schema)
    for last in (False,) * (_TRIES - 1) + (True,):
        planned, into = plan(table, catalog, stream, options, creation)
        try:
            results = [] if planned.already else _run(frame, planned, distribution)
            return planned.commit(into, results)
        except (SchemaConflictError, TableCreatedError, CredentialsExpiredError):
            if last:
                raise
    raise AssertionError("not reached")


def frame_options(frame: DataFrame, memory: int | str | None) -> tuple[int, bool]:
    """What the frame's session says: the memory of a task, and whether names have case."""
    conf = frame.sparkSession.conf
    memory_bytes = parse_bytes(
        memory if memory is not None else conf.get(MEMORY_SETTING, None) or DEFAULT_MEMORY
    )
    return memory_bytes, str(conf.get(_CASE_SETTING, "false")).lower() == "true"


def _run(
    frame: DataFrame, planned: PlannedWrite, distribution: Distribution | None
) -> list[TaskResult]:
    """The job. If it fails, no file of it is left."""
    try:
        distributed = distribute(frame, planned.target, distribution)
        with distributed.settings():
            answers = map_in_arrow(distributed.frame, planned.task, ANSWER_SCHEMA)
            results, retried = run_tasks(answers, TaskResult, *ANSWER_PARTS)
            return [replace(each, retried=retried) for each in results]
    except BaseException as error:
        planned.abandon()
        told = driver_error(error, what=f"writing to {planned.target.table}")
        if told is error:
            raise
        raise told from error
