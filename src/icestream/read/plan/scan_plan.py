"""The scan plan: data files with their deletes, as splits or as PyIceberg's tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import build_position_accessors
from pyiceberg.table import FileScanTask
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from icestream.errors import UnsupportedFeatureError
from icestream.memory.budget import MemoryBudget
from icestream.read.decode.files import RetryPolicy
from icestream.read.plan.found_files import NO_STATISTICS, ManifestWorkers, Statistics
from icestream.read.plan.planner import PlannedFile, Planner, open_planner, planned_tasks
from icestream.read.project.origin import PartitionUnion
from icestream.read.request import ScanRequest
from icestream.read.split import DeleteFile, Split

_KNOWN_PARTITIONS = 1_000


class SplitPlan:
    """The splits of a scan, one for each data file, planned while they are consumed.

    Manifests of delete files are read at the start. A manifest of data files is read when the
    splits before it have been consumed. The order is that of the manifest list and of each
    manifest, as in PyIceberg.

    Args:
        request: The scan.
        budget: The budget for the bytes that planning holds.
        policy: The policy for retries.
        stopped: Ends retries when it is set.
        workers: Read data manifests; by default this process does.

    Raises:
        UnsupportedFeatureError: If the scan needs equality deletes or files in an unsupported
            format. The iteration may raise it, too.
    """

    def __init__(
        self,
        request: ScanRequest,
        *,
        budget: MemoryBudget,
        policy: RetryPolicy,
        stopped: threading.Event,
        workers: ManifestWorkers | None = None,
    ) -> None:
        self._request = request
        self._planner: Planner | None = None
        if not isinstance(request.data_scan.row_filter, AlwaysFalse) and request.limit != 0:
            self._planner = open_planner(
                request, budget=budget, policy=policy, stopped=stopped, workers=workers
            )

    def __iter__(self) -> Iterator[Split]:
        if self._planner is not None:
            yield from _splits(self._request, self._planner)

    def close(self) -> None:
        """Release all bytes that planning holds, and stop planning."""
        if self._planner is not None:
            self._planner.close()


def plan_tasks(
    request: ScanRequest,
    *,
    budget: MemoryBudget,
    workers: ManifestWorkers | None = None,
    statistics: Statistics = NO_STATISTICS,
) -> Iterator[FileScanTask]:
    """Plan a scan as PyIceberg's tasks: data files with the deletes that apply.

    Args:
        request: The scan.
        budget: The budget for the bytes that planning holds.
        workers: Read data manifests; by default this process does.
        statistics: The statistics that the files must have. With workers they lack others.

    Raises:
        UnsupportedFeatureError: If equality deletes apply to one of the files.
    """
    if isinstance(request.data_scan.row_filter, AlwaysFalse):
        return
    policy, stopped = RetryPolicy(), threading.Event()
    planner = open_planner(
        request,
        budget=budget,
        policy=policy,
        stopped=stopped,
        workers=workers,
        statistics=statistics,
    )
    with closing(planner):
        for planned in planner:
            residual = AlwaysTrue() if planned.all_rows_match else request.context.row_filter
            deletes = {_data_file(delete, planned.file) for delete in planned.deletes}
            yield FileScanTask(planned.file, deletes, residual=residual)


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """Whole-file splits from PyIceberg's tasks, created one by one in each iteration."""

    request: ScanRequest
    tasks: Iterable[FileScanTask]

    def __iter__(self) -> Iterator[Split]:
        return _splits(self.request, planned_tasks(self.request, self.tasks))


def _splits(request: ScanRequest, files: Iterable[PlannedFile]) -> Iterator[Split]:
    """Splits of files, until they contain as many rows as the limit."""
    rows_left = request.limit
    if request.context.reshape is not None and request.context.reshape.transform is not None:
        rows_left = None  # A transform may drop rows.
    values = _PartitionValues(request)
    for planned in files:
        file = planned.file
        constants, partition = values.of(file)
        _check_format(file)
        split = Split(
            path=file.file_path,
            rows=file.record_count or 0,  # Other planners may omit it.
            bytes=file.file_size_in_bytes,
            format=file.file_format.value.lower(),
            row_groups=None,
            filtered=not planned.all_rows_match,
            deletes=planned.deletes,
            constants=constants,
            context=request.context,
            spec_id=file.spec_id or 0,
            partition=partition,
        )
        yield split
        if rows_left is not None and not split.filtered and not split.deletes:
            rows_left -= split.rows
            if rows_left <= 0:
                return


class _PartitionValues:
    """The partition values of splits, shared by all files of a partition."""

    def __init__(self, request: ScanRequest) -> None:
        self._schema = request.data_scan.table_metadata.schema()
        self._specs = request.data_scan.table_metadata.specs()
        self._wanted = request.context.read_schema.field_ids
        self._union = None
        if "_partition" in request.context.metadata_columns:
            self._union = PartitionUnion(request.data_scan.table_metadata)
        self._known: dict[tuple[Any, ...], tuple[tuple[tuple[int, Any], ...], tuple[Any, ...]]] = {}

    def of(self, file: DataFile) -> tuple[tuple[tuple[int, Any], ...], tuple[Any, ...]]:
        """Identity partition values by field id, and the values of `_partition`."""
        spec = self._specs.get(file.spec_id or 0)
        if spec is None or (not spec.fields and self._union is None):
            return (), ()
        key = (file.spec_id, *(file.partition[n] for n in range(len(file.partition))))
        known = self._known.get(key)
        if known is None:
            if len(self._known) == _KNOWN_PARTITIONS:
                self._known.clear()
            constants = self._constants(spec, file.partition)
            known = constants, () if self._union is None else self._union.values(file)
            self._known[key] = known
        return known

    def _constants(self, spec: PartitionSpec, partition: Record) -> tuple[tuple[int, Any], ...]:
        identity = [
            field
            for field in spec.fields
            if isinstance(field.transform, IdentityTransform) and field.source_id in self._wanted
        ]
        if not identity:
            return ()
        accessors = build_position_accessors(spec.partition_type(self._schema))
        return tuple((f.source_id, accessors[f.field_id].get(partition)) for f in identity)


def _check_format(file: DataFile) -> None:
    if file.file_format not in (FileFormat.PARQUET, FileFormat.ORC):
        raise UnsupportedFeatureError(
            f"{file.file_path} is an {file.file_format.value} data file: icestream reads Parquet "
            "and ORC. Rewrite the file as Parquet with the engine that wrote it"
        )


def _data_file(delete: DeleteFile, of: DataFile) -> DataFile:
    """A delete file in the form of PyIceberg's tasks."""
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=delete.path,
        file_format=FileFormat(delete.format.upper()),
        partition=of.partition,
        record_count=delete.records,
        file_size_in_bytes=delete.bytes,
    )
    file.spec_id = of.spec_id
    return file
