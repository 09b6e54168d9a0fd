"""Decides how the rows of a load on Spark get to the table: read by icestream's tasks, or through a
DataFrame.

- Tasks read and write the rows of tables without partitions and sort order, and of tables whose
  `write.distribution-mode` is `none`.
- With partitions, tasks read and write if that gives few or large files, by a sample of the rows.
- In a merge, tasks read the rows and add keys, and Spark joins the keys.
- Spark distributes the rows of a DataFrame for tables with a sort order, and for tables whose
  `write.distribution-mode` is `hash` or `range`.

If there is only one task, it always reads and writes, because it has all rows. A wrong estimate
costs time or makes files smaller. It never changes rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from icestream.commit.new_table import new_table_schema
from icestream.errors import (
    IcestreamError,
    MissingExtraError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from icestream.operations.merge.merge_options import MergeOptions
from icestream.operations.merge.merge_plan import written_columns
from icestream.operations.row_changes import is_partitioned
from icestream.operations.write_files import write_target
from icestream.pipeline.engines.direct_source import DirectSource, NotDirectError
from icestream.pipeline.engines.partition_sample import PartitionSample, sample_partitions
from icestream.pipeline.inputs.load_input import LoadInputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.read.plan.found_files import ManifestWorkers
from icestream.spark.arrow.types import spark_schema
from icestream.spark.tasks.direct_write import SourcePart, SourceReader
from icestream.spark.tasks.packing import MOST_BYTES_PER_TASK
from icestream.spark.writing.distribution import DISTRIBUTION_PROPERTY, table_mode
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.partition.spec_text import partition_spec, sort_order
from icestream.write.schema.schema_plan import plan_schema
from icestream.write.target import WriteTarget

_SENSIBLE_FILE_BYTES = 4 << 20
_MOST_FILES_TIMES = 8  # of the number of files after a shuffle
_AS_FEW_TIMES = 1.25
_MOST_LARGE_TASK_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Route:
    """How the rows get to the table.

    Attributes:
        reason: Why, in words.
        reader: Reads the sources in tasks; None if the rows pass through a DataFrame.
        shares: What each task reads.
    """

    reason: str
    reader: SourceReader | None = None
    shares: Sequence[Sequence[SourcePart]] = field(default=(), repr=False)

    @property
    def is_direct(self) -> bool:
        """Whether tasks of icestream read the rows."""
        return self.reader is not None


def choose_route(
    spec: LoadSpec,
    inputs: LoadInputs,
    target: LoadTarget,
    *,
    cores: int,
    memory_bytes: int,
    case_sensitive: bool = False,
    workers: ManifestWorkers | None = None,
) -> Route:
    """Decide how the rows of a load get to the table.

    Args:
        spec: The load.
        inputs: Its sources, with known columns of files.
        target: The table.
        cores: Number of tasks that run at once.
        memory_bytes: Memory limit of each task, and of the sample.
        case_sensitive: Whether columns may differ only by case.
        workers: Read the manifests of tables; by default this process does.

    Memory: the lists of files and splits, and one batch of rows.
    """
    try:
        source = DirectSource.of(
            spec,
            inputs,
            cores=cores,
            memory_bytes=memory_bytes,
            case_sensitive=case_sensitive,
            workers=workers,
        )
    except NotDirectError as error:
        return Route(str(error))
    if spec.mode == "merge":
        refused = _refused_by_spark(target.name, source.reader.output)
        if refused is not None:
            return Route(refused)
    try:
        layout, source = _layout(spec, target, source)
    except SchemaMismatchError:
        if _refused_by_spark(target.name, *source.schemas) is not None:
            return Route("the columns do not fit the table", source.reader, source.shares())
        return Route("Spark casts the columns to the types of the table, or refuses them")
    if spec.mode == "merge":
        shares = source.shares()
        return Route("tasks read the rows, and Spark joins their keys", source.reader, shares)
    return _Choice(source, layout, memory_bytes).route()


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is known about the table before the write is planned."""

    table: str
    schema: Schema
    spec: PartitionSpec
    order: SortOrder
    properties: dict[str, str] = field(repr=False)


def _layout(
    spec: LoadSpec, target: LoadTarget, source: DirectSource
) -> tuple[_Layout, DirectSource]:
    """The layout, and the source with types that fit the table."""
    columns = source.reader.output
    if target.table is None:
        properties = {str(key): str(value) for key, value in spec.table_properties.items()}
        schema = new_table_schema(target.name, columns, properties).schema
        parts, order = partition_spec(spec.partition_by, schema), sort_order(spec.sort_by, schema)
        return _Layout(target.name, schema, parts, order, properties), source
    table = write_target(target.table)
    try:
        schema = _planned(spec, table, columns)
    except SchemaMismatchError:
        # The table may have text where the sources have UUIDs, as a DataFrame would.
        source = replace(source, reader=replace(source.reader, for_spark=True))
        schema = _planned(spec, table, source.reader.schema)
    return _Layout(table.table, schema, table.spec, table.sort_order, table.properties), source


def _planned(spec: LoadSpec, table: WriteTarget, columns: pa.Schema) -> Schema:
    """The schema of the table after the load."""
    if spec.mode == "merge":
        columns = written_columns(
            MergeOptions(**spec.merge_options, schema_mode=spec.schema_mode), columns, table
        )
    return plan_schema(table, columns, mode=spec.schema_mode).schema


@dataclass(frozen=True, slots=True)
class _Choice:
    """Chooses the route of a load whose tasks can read the sources themselves."""

    source: DirectSource
    layout: _Layout
    memory_bytes: int

    def route(self) -> Route:
        layout = self.layout
        mode = table_mode(layout.properties, layout.spec, layout.order, table=layout.table)
        if not is_partitioned(layout.spec) and (mode == "hash" or not layout.order.fields):
            mode = "none"  # there is nothing to distribute by
        shares = self.source.shares()
        if mode == "none":
            return self._direct(f"tasks read and write the rows: distribution {mode}", shares)
        if len(shares) <= 1 and self.source.bytes <= MOST_BYTES_PER_TASK:
            return self._direct("one task reads and writes all rows", shares)
        if (refused := _refused_by_spark(layout.table, *self.source.schemas)) is not None:
            return self._direct(f"tasks read and write the rows: {refused}", shares)
        if mode == "range" or DISTRIBUTION_PROPERTY in layout.properties:
            return Route(f"Spark distributes the rows: distribution {mode}")
        return self._partitioned(shares)

    def _partitioned(self, shares: list[list[SourcePart]]) -> Route:
        sample = self._sample()
        if sample is None:
            return Route("Spark distributes the rows by partition: their partitions are unknown")
        # Fewer tasks write larger files. Two tasks for each core would only end more evenly.
        few = self.source.shares(self.source.cores, _MOST_LARGE_TASK_BYTES)
        if self._gives_as_few_files(sample, len(shares)):
            return self._direct(self._in_words(sample, shares), shares)
        if self._gives_sensible_files(sample, len(few)):
            return self._direct(self._in_words(sample, few), few)
        return Route(
            f"Spark distributes the rows by partition: {len(few)} tasks would write about "
            f"{ceil(sample.files(len(few))):,} files for {ceil(sample.partitions):,} partitions"
        )

    def _in_words(self, sample: PartitionSample, shares: list[list[SourcePart]]) -> str:
        return (
            f"tasks read and write the rows without a shuffle: {len(shares)} tasks write about "
            f"{ceil(sample.files(len(shares))):,} files for {ceil(sample.partitions):,} partitions"
        )

    def _gives_as_few_files(self, sample: PartitionSample, tasks: int) -> bool:
        """Whether tasks that read and write make about as few files as after a shuffle."""
        return sample.files(tasks) <= _AS_FEW_TIMES * self._files_after_shuffle(sample)

    def _gives_sensible_files(self, sample: PartitionSample, tasks: int) -> bool:
        """Whether tasks that read and write make large files, and not too many."""
        if self._gives_as_few_files(sample, tasks):
            return True
        files, few = sample.files(tasks), self._files_after_shuffle(sample)
        sensible = min(_SENSIBLE_FILE_BYTES, self._target_bytes)
        return files <= _MOST_FILES_TIMES * few and self.source.stored_bytes / files >= sensible

    def _files_after_shuffle(self, sample: PartitionSample) -> float:
        return max(sample.partitions, self.source.stored_bytes / self._target_bytes)

    @property
    def _target_bytes(self) -> int:
        layout = self.layout
        return ParquetSettings.of(layout.properties, layout.schema).target_file_bytes

    def _sample(self) -> PartitionSample | None:
        try:
            return sample_partitions(
                self.source.reader,
                self.source.parts,
                self.layout.schema,
                self.layout.spec,
                memory_bytes=self.memory_bytes,
                table=self.layout.table,
            )
        except (IcestreamError, pa.ArrowException, OSError):  # the job raises it again
            return None

    def _direct(self, reason: str, shares: Sequence[Sequence[SourcePart]]) -> Route:
        return Route(reason, self.source.reader, shares)


def _refused_by_spark(table: str, *schemas: pa.Schema) -> str | None:
    try:
        for columns in schemas:
            spark_schema(columns, table=table)
    except MissingExtraError:  # a dry run does not need PySpark
        return None
    except UnsupportedFeatureError:
        return "Spark has no type for a column"
    return None
