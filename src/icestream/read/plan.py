"""The plan of a scan: data files with their deletes become splits, or tasks, one by one."""

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
from icestream.memory import MemoryBudget
from icestream.read.files import RetryPolicy
from icestream.read.origin import PartitionUnion
from icestream.read.planner import PlannedFile, Planner, open_planner, planned_task
from icestream.read.request import ScanRequest
from icestream.read.split import DeleteFile, Split

_KNOWN_PARTITIONS = 1_000


class SplitPlan:
    """The splits of a scan, one per data file, found while they are taken.

    Manifests of delete files are read at once, those of data files when the splits before them have
    been taken. The order is that of the manifest list and of each manifest, as in PyIceberg.

    Args:
        asked: The scan.
        budget: Where what planning holds is charged.
        policy: Retries.
        stopped: Ends retries when it is set.

    Raises:
        UnsupportedFeatureError: If equality deletes or a format we do not read are in the way; the
            iteration raises it, too.
    """

    def __init__(
        self,
        asked: ScanRequest,
        *,
        budget: MemoryBudget,
        policy: RetryPolicy | None = None,
        stopped: threading.Event | None = None,
    ) -> None:
        self._asked = asked
        self._planner: Planner | None = None
        if not _asks_for_nothing(asked):
            self._planner = open_planner(asked, budget=budget, policy=policy, stopped=stopped)

    def __iter__(self) -> Iterator[Split]:
        if self._planner is not None:
            yield from _splits(self._asked, self._planner)

    def close(self) -> None:
        """Give back all that planning holds. What is left of the plan is not found any more."""
        if self._planner is not None:
            self._planner.close()


def plan_tasks(asked: ScanRequest, *, budget: MemoryBudget) -> Iterator[FileScanTask]:
    """The data files that might hold rows, with the deletes that apply, as PyIceberg's tasks.

    Args:
        asked: The scan.
        budget: Where what planning holds is charged.

    Raises:
        UnsupportedFeatureError: If equality deletes apply to one of the files.
    """
    if isinstance(asked.data_scan.row_filter, AlwaysFalse):
        return
    with closing(open_planner(asked, budget=budget)) as planner:
        for planned in planner:
            residual = AlwaysTrue() if planned.all_rows_match else asked.context.row_filter
            deletes = {_data_file(delete, planned.file) for delete in planned.deletes}
            yield FileScanTask(planned.file, deletes, residual=residual)


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """Whole-file splits from PyIceberg's tasks, one by one; as often as the tasks can be read.

    Args:
        asked: The scan that they are of.
        tasks: The tasks.
    """

    asked: ScanRequest
    tasks: Iterable[FileScanTask]

    def __iter__(self) -> Iterator[Split]:
        wanted = (task for task in self.tasks if not isinstance(task.residual, AlwaysFalse))
        return _splits(self.asked, (planned_task(self.asked, task) for task in wanted))


def _asks_for_nothing(asked: ScanRequest) -> bool:
    return isinstance(asked.data_scan.row_filter, AlwaysFalse) or asked.limit == 0


def _splits(asked: ScanRequest, files: Iterable[PlannedFile]) -> Iterator[Split]:
    """Splits of files, until the rows that the limit asks for are in them."""
    rows_left = asked.limit
    values = _PartitionValues(asked)
    for planned in files:
        file = planned.file
        constants, partition = values.of(file)
        _check_format(file)
        split = Split(
            path=file.file_path,
            rows=file.record_count or 0,  # Other planners may leave it out.
            bytes=file.file_size_in_bytes,
            format=file.file_format.value.lower(),
            row_groups=None,
            filtered=not planned.all_rows_match,
            deletes=planned.deletes,
            constants=constants,
            context=asked.context,
            spec_id=file.spec_id or 0,
            partition=partition,
        )
        yield split
        if rows_left is not None and not split.filtered and not split.deletes:
            rows_left -= split.rows
            if rows_left <= 0:
                return


class _PartitionValues:
    """What splits say of their partition; files of one partition share it."""

    def __init__(self, asked: ScanRequest) -> None:
        self._schema = asked.data_scan.table_metadata.schema()
        self._specs = asked.data_scan.table_metadata.specs()
        self._wanted = asked.context.read_schema.field_ids
        self._union = None
        if "_partition" in asked.context.metadata_columns:
            self._union = PartitionUnion(asked.data_scan.table_metadata)
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
    """A delete file as PyIceberg's tasks have them."""
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
